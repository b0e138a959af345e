"""Entry point of `gddl`: runs one command line, and turns errors into text and exit statuses."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_gddl import __version__
from airflow_gddl.contract.codes import PATH_UNUSABLE
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError
from airflow_gddl.contract.packages import needed_by, of_import

if TYPE_CHECKING:
    from airflow_gddl.cli.context import CliContext

_DEBUG = "--debug"
_UNUSABLE = 2
"""Exit status, as `context.BAD_METADATA`, which needs the libraries of the terminal."""


def main() -> None:
    """Run the command of this process and exit with its status."""
    if sys.argv[1:] == ["--version"]:  # without the libraries of the terminal, whose import takes most of the time
        sys.stdout.write(f"gddl {__version__}\n")
        sys.exit()
    try:
        with needed_by("gddl", install="airflow-gddl[cli]"):
            from airflow_gddl.cli import context  # noqa: PLC0415 - see above
            from airflow_gddl.cli.commands import app  # noqa: F401, PLC0415 - see above
    except FatalError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_UNUSABLE)
    from airflow_gddl.contract.python_command import exit_process  # noqa: PLC0415 - see above

    exit_process(invoke(sys.argv[1:], context.real()))


def invoke(arguments: Sequence[str], cli: CliContext) -> int:
    """Run one command line; returns its exit status and never raises."""
    from airflow_gddl.cli import context  # noqa: PLC0415 - as in `main`
    from airflow_gddl.cli.commands import app  # noqa: PLC0415 - as in `main`

    wanted = [argument for argument in arguments if argument != _DEBUG]
    debug = len(wanted) < len(arguments)
    try:
        app(wanted, obj=cli, prog_name="gddl")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else context.OK if ended.code is None else context.FAILED
    except Exception as error:  # noqa: BLE001 - a defect must not print a traceback without --debug
        known = _known(error, " ".join(["gddl", *wanted[:1]]))
        if debug:
            cli.screen.warn("".join(traceback.format_exception(error)))
        if known is None:
            cli.screen.warn(f"[INTERNAL] {type(error).__name__}: {error}. Remedy: run it again with {_DEBUG}.", "red")
            return context.FAILED
        cli.screen.warn(str(known), "red")
        return context.of_error(known)
    return context.OK


def _known(error: Exception, command: str) -> GddlError | None:
    """The error with a code; null for a defect of this project.

    Args:
        command: its name, with `gddl`.
    """
    if isinstance(error, GddlError):
        return error
    if isinstance(error, ImportError):
        return of_import(error, command)
    return _unusable(error) if isinstance(error, OSError) and error.filename is not None else None


def _unusable(error: OSError) -> MetadataError:
    """A path of the command line that can't be read or written; the job and the stores have codes of their own."""
    remedy = "name another path, or correct its permissions"
    return MetadataError(PATH_UNUSABLE, f"{error.filename}: {error.strerror}", remedy=remedy)


if __name__ == "__main__":
    main()
