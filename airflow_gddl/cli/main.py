"""Entry point of `gddl`: one command a module, and one place where errors become text and exit statuses."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl import __version__
from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import deploy, errors, exits, sweep
from airflow_gddl.cli.bundle import bundle
from airflow_gddl.cli.check import check
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.demo import demo
from airflow_gddl.cli.erase import erase
from airflow_gddl.cli.explain import explain
from airflow_gddl.cli.fake_databricks import fake_databricks
from airflow_gddl.cli.init import init
from airflow_gddl.cli.inspect import inspect
from airflow_gddl.cli.maintain import maintain
from airflow_gddl.cli.onboard import onboard
from airflow_gddl.cli.plan import plan
from airflow_gddl.cli.pools import pools
from airflow_gddl.cli.resync import resync
from airflow_gddl.cli.run import run
from airflow_gddl.cli.simulate import simulate
from airflow_gddl.cli.status import status
from airflow_gddl.cli.validate import validate
from airflow_gddl.cli.verify import verify
from airflow_gddl.contract.errors import GddlError

_DEBUG = "--debug"
_HELP = """Bring database tables into Delta Lake and keep them there, by metadata.

Exit status: 0 all succeeded; 1 some table failed (the others are done); 2 wrong metadata or arguments; 75 a passing
fault, try again. With --debug, anywhere, an error shows its traceback."""

app = typer.Typer(name="gddl", help=_HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (
    *(
        init,
        check,
        onboard,
        inspect,
        validate,
        plan,
        run,
        status,
        verify,
        explain,
        maintain,
        erase,
        resync,
        simulate,
        demo,
        pools,
        bundle,
    ),
    fake_databricks,
):
    app.command()(command)
app.add_typer(errors.app, name="errors")
app.add_typer(sweep.app, name="sweep")
app.add_typer(deploy.app, name="deploy")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gddl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command of this process and exit with its status."""
    sys.exit(invoke(sys.argv[1:], surroundings.real()))


def invoke(arguments: Sequence[str], around: CliContext) -> int:
    """Run one command line; returns its exit status and never raises."""
    wanted = [argument for argument in arguments if argument != _DEBUG]
    debug = len(wanted) < len(arguments)
    try:
        app(wanted, obj=around, prog_name="gddl")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else exits.OK if ended.code is None else exits.FAILED
    except GddlError as error:
        _tell(around, error, debug, str(error))
        return exits.of_error(error)
    except Exception as error:  # noqa: BLE001 - the last net: a defect of this program must not print a traceback unasked
        _tell(around, error, debug, f"[INTERNAL] {type(error).__name__}: {error}. Remedy: run it again with {_DEBUG}.")
        return exits.FAILED
    return exits.OK


def _tell(around: CliContext, error: Exception, debug: bool, text: str) -> None:
    if debug:
        around.screen.warn("".join(traceback.format_exception(error)))
    around.screen.warn(text, "red")


if __name__ == "__main__":
    main()
