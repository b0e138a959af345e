"""Entry points of the job: `gddl-job`, `gddl-task`, and what scripts of platforms call.

Nothing but the contract is imported before a job starts, so that a missing package is an error with a code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.python_command import exit_process


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status of the job of the arguments; see `program.run`."""
    try:
        with needed_by("a job", install="airflow-gddl[spark]"):
            from spark_jobs import program  # noqa: PLC0415 - see above
    except FatalError as error:
        print(error, file=sys.stderr)
        return 2
    return program.run(argv)


def script() -> NoReturn:
    """`main` of a process of its own, which ends with the exit status."""
    exit_process(main())


def task() -> None:
    """`main` for platforms that call a function and show its exception.

    Raises:
        GddlError: `PACKAGE_MISSING`, or as `program.read_spec`.
        SystemExit: with the exit status, when tables failed.
    """
    with needed_by("a job", install="airflow-gddl[spark]"):
        from spark_jobs import program  # noqa: PLC0415 - see above
    status = program.run(None, raises=True)
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    script()
