"""`gddl onboard`: metadata of a source.

Files of a landing root are read with pyarrow, which is imported only then: a database is read without it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.options import absolute, check_names
from airflow_gddl.cli.screen import Cell, Screen, count, counted
from airflow_gddl.cli.source_database import SourceDatabase
from airflow_gddl.cli.verify import require_name
from airflow_gddl.contract.codes import (
    COMMAND_MISSING,
    FIELD_VALUE,
    ONBOARD_NOTHING_FOUND,
    ONBOARD_REFUSED,
    SETTINGS_MISSING,
)
from airflow_gddl.contract.errors import FatalError, MetadataError, documented
from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.row_checks import check_values
from airflow_gddl.contract.source_access import announced
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.folder import FILE, Folder, open_folder
from airflow_gddl.metadata.loading import load
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.settings import Settings, SettingsError, read_settings
from airflow_gddl.stores import open_store
from airflow_gddl.tools.onboarding.database import Database
from airflow_gddl.tools.onboarding.plan import (
    TASK_SETTINGS,
    OnboardingPlan,
    Overlay,
    connector_settings,
    endpoint_settings,
    make_plan,
    pasted,
    table_mapping,
)
from airflow_gddl.tools.onboarding.rules import Notice, SourceFacts
from airflow_gddl.tools.onboarding.writing import FileChange

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

_Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Short name of the source, used for files and packs.")]
_Connection = Annotated[
    str,
    typer.Option(
        "--connection", metavar="NAME", help="Read this database: a variable with a URL, or AIRFLOW_CONN_NAME."
    ),
]
_Landing = Annotated[
    str, typer.Option("--landing", metavar="ROOT", help="Where files land; default: gddl.yaml's landing.")
]
_Schemas = Annotated[
    list[str] | None,
    typer.Option("--schema", metavar="NAME", help="Only tables of this schema; may be given several times."),
]
_From = Annotated[
    list[Path] | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Also read what you have: a DMS task or endpoint, a Debezium connector, a file of sdp-meta.",
    ),
]
_Capture = Annotated[
    bool,
    typer.Option(
        "--capture", help="A PostgreSQL whose log jobs read: also its block in gddl.yaml, and its publication."
    ),
]
_Write = Annotated[bool, typer.Option("--write", help="Write the files without asking.")]


def onboard(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    source: _Source,
    *,
    metadata: options.Metadata = "metadata",
    connection: _Connection = "",
    landing: _Landing = "",
    schema: _Schemas = None,
    table: options.Tables = None,
    from_: _From = None,
    capture: _Capture = False,
    write: _Write = False,
    json: options.Json = False,
) -> None:
    """Propose metadata rows and keys for all tables of a source, as a diff; exit status 1 if changes are not
    written."""
    given = OnboardingOptions(
        source=source,
        metadata=metadata,
        connection=connection,
        landing=landing,
        schemas=frozenset(schema or ()),
        tables=frozenset(table or ()),
        files=tuple(from_ or ()),
        capture=capture,
        write=write,
        as_json=json,
    )
    raise typer.Exit(context.OK if carry_out(context.of(ctx), given) else context.FAILED)


_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))
_MOST = 20


def show_plan(screen: Screen, files: Sequence[FileChange], plan: OnboardingPlan) -> None:
    """New files on standard output, open decisions on standard error."""
    for file in files:
        for line in diff(file):
            style = next((style for sign, style in _STYLES if line.startswith(sign)), "")
            # Not wrapped: a wrapped part without its sign would be read as another line.
            screen.spans([Cell(line.rstrip("\r\n"), style)])
    if not files:
        screen.say("nothing to change", "green")
    _show_notices(screen, plan.notices)
    screen.warn(counted(len(plan.rows), "new table"), "bold")


def diff(file: FileChange) -> Iterator[str]:
    """Lines of a unified diff."""
    old = "/dev/null" if file.old is None else f"a/{file.name}"
    before = [] if file.old is None else file.old.splitlines(keepends=True)
    for line in difflib.unified_diff(before, file.new.splitlines(keepends=True), old, f"b/{file.name}"):
        yield line if line.endswith("\n") else f"{line}\n"


def _show_notices(screen: Screen, notices: Sequence[Notice]) -> None:
    by_code: dict[str, list[Notice]] = {}
    for notice in notices:
        by_code.setdefault(notice.code, []).append(notice)
    for code, group in sorted(by_code.items()):
        screen.warn(
            f"[{code}] {counted(len(group), 'table')}{'. Remedy: ' if group[0].remedy else ''}{group[0].remedy}",
            "yellow",
        )
        rows = [[Cell(one.table), Cell(one.message)] for one in group[:_MOST]]
        more = [["…", f"and {count(len(group) - _MOST)} more; --json lists all"]] if len(group) > _MOST else []
        screen.table(("table", "what"), [*rows, *more], error=True)


_SHOWN = 5


def next_steps(tables: Sequence[TableSpec], landing: str, metadata: str, *, from_database: bool) -> Iterator[str]:
    """Lines with JSON and commands for copying.

    Args:
        tables: enabled tables of the source, sorted.
        from_database: no CDC task is known to write files yet.
    """
    place = "" if metadata == "metadata" else f" --metadata {metadata}"
    yield from ("", "Next steps:")
    if from_database and any(table.dialect == "dms" for table in tables):
        mine = [table for table in tables if table.dialect == "dms"]
        yield "- AWS DMS: create a task of type full-load-and-cdc. Table mapping:"
        yield pasted(table_mapping(mine))
        yield "  Task settings:"
        yield json.dumps(TASK_SETTINGS)
        yield "  Settings of its target endpoint, which is of type S3:"
        yield json.dumps(endpoint_settings(landing))
    if from_database and (captured := [table for table in tables if table.dialect == "debezium"]):
        how = documented("debezium.md")
        yield f"- Debezium: create a source connector, and a sink as {how} describes it. Connector settings:"
        yield json.dumps(connector_settings(captured))
    yield "- Files are expected in:"
    yield from (f"  {LandingFolder(landing, table.name_in_source).path}/" for table in tables[:_SHOWN])
    if len(tables) > _SHOWN:
        yield f"  and {len(tables) - _SHOWN:,} more folders, {join(landing, 'SCHEMA', 'TABLE')}/"
    yield f"- gddl check{place}        # folders, permissions, connections, versions"
    yield f"- gddl run{place}"


@dataclass(frozen=True, kw_only=True)
class OnboardingOptions:
    """The command line as typed; empty: not given."""

    source: str
    metadata: str
    connection: str
    landing: str
    schemas: frozenset[str]
    tables: frozenset[str]
    files: tuple[Path, ...]
    capture: bool
    write: bool
    as_json: bool


def carry_out(cli: CliContext, given: OnboardingOptions) -> bool:
    """Whether all changes are written.

    Raises:
        GddlError: the source or the metadata can't be read, or the files can't be written.
    """
    check(given)
    folder = open_folder(given.metadata, cli.environ)
    first = _captured_settings(folder, given, cli)
    seen = Overlay(folder, {change.name: change.new for change in first})
    settings = read_settings(seen, cli.environ)
    facts = _facts(cli, given, settings)
    plan = make_plan(seen, settings, given.source, facts, cli.environ)
    files = (*first, *plan.files)
    if not given.as_json:
        show_plan(cli.screen, files, plan)
    write = bool(files) and (given.write or _confirmed(cli, given))
    if write:
        write_files(cli, given.metadata, files)
    if given.as_json:
        for record in records(files, plan, written=write):
            cli.screen.record(record)
    elif write:
        cli.screen.say(f"{counted(len(files), 'file')} written", "green")
    elif files:
        cli.screen.warn(_unwritten(given), "yellow")
    if files and not write:
        return False
    if given.capture:
        _show_log(cli, given, facts)
    elif write and not given.as_json:
        _show_steps(cli, given)
    return True


def _unwritten(given: OnboardingOptions) -> str:
    then = "; then this command shows what the source lacks" if given.capture else ""
    return f"nothing was written; --write does it{then}"


def _show_steps(cli: CliContext, given: OnboardingOptions) -> None:
    loaded, mine = _enabled(cli, given)
    if mine:
        landing = loaded.landings.get(given.source, loaded.roots.landing)
        for line in next_steps(mine, landing, given.metadata, from_database=bool(given.connection)):
            cli.screen.dictate(line)


def _enabled(cli: CliContext, given: OnboardingOptions) -> tuple[LoadedMetadata, list[TableSpec]]:
    """The metadata, and the enabled rows of the source."""
    loaded = load(given.metadata, cli.environ)
    return loaded, [table for table in loaded.tables if table.source == given.source and table.enabled]


def _show_log(cli: CliContext, given: OnboardingOptions, facts: SourceFacts) -> None:
    """Show what the log of the source needs."""
    from airflow_gddl.tools.onboarding import captured  # noqa: PLC0415 - other sources do without it

    _, mine = _enabled(cli, given)
    if not mine:
        what = f"{given.source} has no enabled, valid row, so its log was not tried: see `gddl validate`"
        cli.screen.warn(what, "yellow")
        return
    rows = {one.table: one.rows for one in facts.tables}
    log = captured.look(mine, rows, SourceDatabase(given.connection, cli.environ))
    if given.as_json:
        for record in captured.records(log):
            cli.screen.record(record)
    else:
        for line in captured.lines(log):
            cli.screen.dictate(line)
        if log.is_ready:
            cli.screen.dictate(f"- gddl run{'' if given.metadata == 'metadata' else f' --metadata {given.metadata}'}")


def check(given: OnboardingOptions) -> None:
    """
    Raises:
        MetadataError: `FIELD_VALUE`.
    """
    require_name(given.connection)
    if given.capture and not given.connection:
        remedy = "name the connection that jobs have, too: --connection GDDL_SOURCE_NAME"
        raise MetadataError(FIELD_VALUE, "--capture needs --connection", remedy=remedy)
    for problem in check_values(TableSpec(table="a.b", keys=(), source=given.source)):
        raise MetadataError(
            problem.code, f"the source {given.source!r:.80} is {problem.message}", remedy=problem.remedy
        )
    check_names(given.tables)


def _captured_settings(folder: Folder, given: OnboardingOptions, cli: CliContext) -> tuple[FileChange, ...]:
    """The change of `gddl.yaml`, with the block of a source whose log jobs read."""
    if not given.capture:
        return ()
    from airflow_gddl.tools.onboarding.captured import with_source  # noqa: PLC0415 - as above

    read_settings(folder, cli.environ)  # which names what is wrong with it
    try:
        old = folder.read(FILE).decode()
    except FileNotFoundError as error:
        remedy = "write it with `landing` and `lake`, which variables name now: the source is declared there"
        problem = Problem(code=SETTINGS_MISSING, message="there is no such file", remedy=remedy, file=FILE)
        raise SettingsError((problem,), folder.base) from error
    new_text = with_source(old, given.source, given.connection)
    return () if new_text == old else (FileChange(name=FILE, old=old, new=new_text),)


def _facts(cli: CliContext, given: OnboardingOptions, settings: Settings) -> SourceFacts:
    if not given.files:
        return _found(cli, given, settings)
    imported = _imported(given.files)
    try:
        found = _found(cli, given, settings)
    except MetadataError as error:
        if given.connection or not imported.selections or error.code != ONBOARD_NOTHING_FOUND:
            raise
        found = None  # nothing has landed yet
    facts: SourceFacts = imported.facts(found)
    return replace(facts, tables=tuple(one for one in facts.tables if _is_asked_for(one.table, given)))


def _is_asked_for(table: str, given: OnboardingOptions) -> bool:
    by_schema = not given.schemas or table.partition(".")[0] in given.schemas
    return by_schema and (not given.tables or table in given.tables)


def _imported(files: Sequence[Path]) -> Any:
    """An `ImportedSource`, by modules that can be removed.

    Raises:
        FatalError: `COMMAND_MISSING`.
        MetadataError: `ONBOARD_REFUSED`.
    """
    place = f"{__package__}.from_files"
    try:
        reading = import_module(place)
    except ModuleNotFoundError as error:
        what, remedy = "this installation lacks what reads the file of --from", "install all of airflow-gddl"
        raise FatalError(COMMAND_MISSING, what, where=place, remedy=remedy) from error
    try:
        return reading.read({str(path): path.read_text("utf-8-sig") for path in files})
    except (OSError, UnicodeDecodeError) as error:
        raise MetadataError(ONBOARD_REFUSED, f"a file can't be read: {error}", remedy="correct --from") from error


def _found(cli: CliContext, given: OnboardingOptions, settings: Settings) -> SourceFacts:
    if given.connection:
        return Database(given.connection, cli.environ).read(given.schemas, given.tables)
    with needed_by("a proposal without --connection", install="airflow-gddl[local]"):
        from airflow_gddl.tools.onboarding.landing import Landing, read_landing  # noqa: PLC0415 - it imports pyarrow

    declared = settings.sources.get(given.source)
    shared = settings.roots.landing if declared is None else declared.landing
    root = absolute(given.landing) if given.landing else shared
    access = tuple(source.access for source in settings.sources.values() if source.access is not None)
    landing = Landing(root, announced(access, cli.environ))
    facts = read_landing(landing, given.schemas, given.tables, cli.now().timestamp())
    if not facts.tables and not facts.notices:
        remedy = (
            "check landing, --schema and --table; files lie in <landing>/<schema>/<table>/, named as DMS names them;"
            " for files of another service, read the database: --connection NAME"
        )
        raise MetadataError(ONBOARD_NOTHING_FOUND, "no table has files of AWS DMS there", where=root, remedy=remedy)
    return facts


def _confirmed(cli: CliContext, given: OnboardingOptions) -> bool:
    """Ask for confirmation of the diff at a terminal; false without a terminal."""
    if given.as_json or not cli.screen.out.is_terminal:
        return False
    return typer.confirm("Write this?", default=False)


def write_files(cli: CliContext, metadata: str, files: tuple[FileChange, ...]) -> None:
    root = absolute(metadata)
    store = open_store(cli.environ)
    for change in files:
        store.write(join(root, change.name), change.new.encode())


def records(files: tuple[FileChange, ...], plan: OnboardingPlan, *, written: bool) -> list[dict[str, Any]]:
    """What `--json` prints: rows, notices, files."""
    return [
        *(
            {"kind": kind, **vars(one)}
            for kind, found in (("new_table", plan.rows), ("notice", plan.notices))
            for one in found
        ),
        *({"kind": "file", "file": f.name, "written": written, "diff": "".join(diff(f))} for f in files),
    ]
