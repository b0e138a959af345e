"""Entry points of the job: `gddl-job`, `gddl-task`, and what scripts of platforms call.

Nothing but the contract is imported before a job starts, so that a missing package is an error with a code.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NoReturn

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.packages import leaves_spark_out, needed_by, package_missing
from airflow_gddl.contract.python_command import exit_process


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status of the job of the arguments; see `program.run`. `--check MODULE…` runs no job: see `check`."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if arguments[:1] == ["--check"]:
            check(arguments[1:])
            return 0
        run = _program()
    except FatalError as error:
        print(error, file=sys.stderr)
        return 2
    return run(argv)


def check(modules: Sequence[str]) -> None:
    """Print what `gddl check` asks of this Python, as JSON: versions of the contract, of this package and of others.

    Args:
        modules: optional ones that jobs are going to import.

    Raises:
        FatalError: `PACKAGE_MISSING`, or as `delta_of_packages`.
    """
    from airflow_gddl import __version__  # noqa: PLC0415 - see above
    from airflow_gddl.contract.spark_versions import job_packages  # noqa: PLC0415 - see above
    from airflow_gddl.contract.spec import CONTRACT_VERSION  # noqa: PLC0415 - see above

    found = job_packages()
    with needed_by("a job of these rows and settings"):
        for module in modules:
            import_module(module)
    known = {"contract_version": CONTRACT_VERSION, "version": __version__, "packages": found}
    sys.stdout.write(json.dumps(known) + "\n")


def script() -> NoReturn:
    """`main` of a process of its own, which ends with the exit status."""
    exit_process(main())


def task() -> None:
    """`main` for platforms that call a function and show its exception.

    Raises:
        GddlError: `PACKAGE_MISSING`, or as `program.read_spec`.
        SystemExit: with the exit status, when tables failed.
    """
    status = _program()(None, raises=True)
    if status:
        raise SystemExit(status)


def _program() -> Callable[..., int]:
    """`program.run`; raises `PACKAGE_MISSING`, for Spark too, which it imports when the first session starts."""
    install = "airflow-gddl[spark]"
    if not leaves_spark_out(os.environ) and find_spec("pyspark") is None:
        raise package_missing("a job", "pyspark", install=install)
    with needed_by("a job", install=install):
        from spark_jobs.program import run  # noqa: PLC0415 - see above
    return run


if __name__ == "__main__":
    script()
