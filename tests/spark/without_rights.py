"""`python -m tests.spark.without_rights ARGUMENTS`: `gddl-job` as a user whom a folder's mode holds back, root too."""

from __future__ import annotations

import ctypes
import os
import sys

_DROP = 24
_OVERRIDE, _READ_SEARCH = 1, 2
"""Linux: `PR_CAPBSET_DROP`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`."""


def main() -> None:
    if os.geteuid() == 0:
        for right in (_OVERRIDE, _READ_SEARCH):
            if ctypes.CDLL(None, use_errno=True).prctl(_DROP, right, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "the right can't be given up")
    # A right that is given up is missing from the next program on.
    os.execv(sys.executable, [sys.executable, "-m", "spark_jobs.main", *sys.argv[1:]])  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    main()
