"""`python -m tests.spark.without_rights ARGUMENTS`: `gddl-job` that respects the modes of folders even as root.

Folders that the stream leaves out are listed again after `SOON` seconds, not a minute, so that a test need not wait.
"""

from __future__ import annotations

import ctypes
import os
import sys

_DROP = 24
_OVERRIDE, _READ_SEARCH = 1, 2
"""Linux: `PR_CAPBSET_DROP`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`."""
SOON = 5.0
_JOB = f"""
import sys
from spark_jobs.continuous import spark_files
from spark_jobs.main import main
spark_files.ANYWAY_SECONDS = {SOON}
sys.exit(main())
"""


def main() -> None:
    if os.geteuid() == 0:
        for right in (_OVERRIDE, _READ_SEARCH):
            if ctypes.CDLL(None, use_errno=True).prctl(_DROP, right, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "the right can't be given up")
    # A right that is given up is missing from the next program on.
    os.execv(sys.executable, [sys.executable, "-c", _JOB, *sys.argv[1:]])  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    main()
