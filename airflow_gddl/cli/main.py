"""Entry point of `gddl`: registers one command for each module, and turns errors into text and exit statuses."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl import __version__
from airflow_gddl.cli import catalog, context, deploy, errors, exits, sweep
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
from airflow_gddl.cli.move import move
from airflow_gddl.cli.onboard import onboard
from airflow_gddl.cli.plan import plan
from airflow_gddl.cli.pools import pools
from airflow_gddl.cli.query import query
from airflow_gddl.cli.repair import rebuild, reload, resync
from airflow_gddl.cli.run import run
from airflow_gddl.cli.simulate import simulate
from airflow_gddl.cli.status import status
from airflow_gddl.cli.usage import Commands
from airflow_gddl.cli.validate import validate
from airflow_gddl.cli.verify import verify
from airflow_gddl.cli.views import views
from airflow_gddl.contract.errors import GddlError, MetadataError

_DEBUG = "--debug"
_HELP = """Bring database tables into Delta Lake and keep them there, by metadata.

Exit status:
0: all succeeded.
1: a table failed, the others succeeded.
2: invalid metadata or arguments.
75: transient error, retry.

With --debug, anywhere, an error shows its traceback."""

app = typer.Typer(
    name="gddl", cls=Commands, help=_HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
for command in (
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
    query,
    views,
    maintain,
    erase,
    move,
    rebuild,
    reload,
    resync,
    simulate,
    demo,
    pools,
    bundle,
    fake_databricks,
):
    app.command()(command)
app.add_typer(errors.app, name="errors")
app.add_typer(sweep.app, name="sweep")
app.add_typer(catalog.app, name="catalog")
app.add_typer(deploy.app, name="deploy")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gddl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command of this process and exit with its status."""
    sys.exit(invoke(sys.argv[1:], context.real()))


def invoke(arguments: Sequence[str], cli: CliContext) -> int:
    """Run one command line; returns its exit status and never raises."""
    wanted = [argument for argument in arguments if argument != _DEBUG]
    debug = len(wanted) < len(arguments)
    try:
        app(wanted, obj=cli, prog_name="gddl")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else exits.OK if ended.code is None else exits.FAILED
    except GddlError as error:
        _tell(cli, error, debug, str(error))
        return exits.of_error(error)
    except Exception as error:  # noqa: BLE001 - a defect must not print a traceback without --debug
        if isinstance(error, OSError) and error.filename is not None:
            _tell(cli, error, debug, str(_unusable(error)))
            return exits.BAD_METADATA
        _tell(cli, error, debug, f"[INTERNAL] {type(error).__name__}: {error}. Remedy: run it again with {_DEBUG}.")
        return exits.FAILED
    return exits.OK


def _unusable(error: OSError) -> MetadataError:
    """A path of the command line that can't be read or written; the job and the stores have codes of their own."""
    remedy = "name another path, or correct its permissions"
    return MetadataError("PATH_UNUSABLE", f"{error.filename}: {error.strerror}", remedy=remedy)


def _tell(cli: CliContext, error: Exception, debug: bool, text: str) -> None:
    if debug:
        cli.screen.warn("".join(traceback.format_exception(error)))
    cli.screen.warn(text, "red")


if __name__ == "__main__":
    main()
