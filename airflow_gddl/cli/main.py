"""Entry point of `gddl`: registers one command for each module, and turns errors into text and exit statuses."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from airflow_gddl import __version__
from airflow_gddl.cli import catalog, context, deploy, errors, maintenance
from airflow_gddl.cli.check import check
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.demo import demo
from airflow_gddl.cli.deploy import bundle
from airflow_gddl.cli.explain import explain, verify
from airflow_gddl.cli.fake_databricks import fake_databricks
from airflow_gddl.cli.init import init, pools
from airflow_gddl.cli.inspect import inspect
from airflow_gddl.cli.maintenance import erase, maintain, move
from airflow_gddl.cli.onboard import onboard
from airflow_gddl.cli.plan import plan
from airflow_gddl.cli.repair import rebuild, reload, resync
from airflow_gddl.cli.run import run
from airflow_gddl.cli.simulate import simulate
from airflow_gddl.cli.status import status
from airflow_gddl.cli.validate import validate
from airflow_gddl.cli.views import query, views
from airflow_gddl.contract.errors import GddlError, MetadataError

_EXTRA = re.compile(r"Got unexpected extra arguments?.*")
_TABLE = re.compile(r"[^\s.]+\.[^\s.]+")


class Commands(TyperGroup):
    """The commands of `gddl`."""

    def invoke(self, ctx: Any) -> Any:
        """As the base class; a usage error of any command has a message of this module."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # The class differs between versions of typer, some of which bring click along.
            message, command = getattr(error, "message", None), getattr(getattr(error, "ctx", None), "command", None)
            if isinstance(message, str) and command is not None:
                error.message = explained(message, [name for one in command.params for name in one.opts])  # type: ignore[attr-defined] # seen above
            raise


def explained(message: str, options: list[str]) -> str:
    """The message of a usage error.

    Args:
        options: of the command, with their dashes.
    """
    message = message.removeprefix("Value error, ")
    extra = message.rpartition("(")[2].rstrip(").").split() if _EXTRA.fullmatch(message) else []
    tables = [name for name in extra if _TABLE.fullmatch(name)]
    if not tables or "--table" not in options:
        return message
    return f"{message}; name tables with an option: {' '.join(f'--table {name}' for name in tables)}"


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
app.add_typer(maintenance.sweep_app, name="sweep")
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
        return ended.code if isinstance(ended.code, int) else context.OK if ended.code is None else context.FAILED
    except GddlError as error:
        _tell(cli, error, debug, str(error))
        return context.of_error(error)
    except Exception as error:  # noqa: BLE001 - a defect must not print a traceback without --debug
        if isinstance(error, OSError) and error.filename is not None:
            _tell(cli, error, debug, str(_unusable(error)))
            return context.BAD_METADATA
        _tell(cli, error, debug, f"[INTERNAL] {type(error).__name__}: {error}. Remedy: run it again with {_DEBUG}.")
        return context.FAILED
    return context.OK


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
