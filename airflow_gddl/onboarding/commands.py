"""`gddl onboard` and `gddl inspect`: metadata of a source, and its settings as its files show them.

Files of a landing root are read with pyarrow, which is imported only then: a database is read without it.
"""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_gddl.cli import context, options, paused
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.options import absolute, check_names
from airflow_gddl.cli.screen import Cell, Screen, count, counted
from airflow_gddl.cli.source_database import SourceDatabase
from airflow_gddl.cli.verify import require_name
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError, documented
from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.row_checks import check_values
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.source_access import SourceAccess, announced
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.folder import FILE, Folder, open_folder
from airflow_gddl.metadata.loading import load
from airflow_gddl.metadata.settings import Settings, read_settings
from airflow_gddl.onboarding.database import Database
from airflow_gddl.onboarding.plan import (
    TASK_SETTINGS,
    OnboardingPlan,
    Overlay,
    connector_settings,
    endpoint_settings,
    make_plan,
    pasted,
    table_mapping,
)
from airflow_gddl.onboarding.rules import Notice, SourceFacts
from airflow_gddl.onboarding.writing import FileChange
from airflow_gddl.onboarding.yaml_text import flow
from airflow_gddl.stores import open_store

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata
    from airflow_gddl.onboarding.inspection import Finding

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
_Lake = Annotated[
    str, typer.Option("--lake", metavar="ROOT", help="Where tables live; with --landing, for a new gddl.yaml.")
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
_Apply = Annotated[
    bool, typer.Option("--apply", help="With --capture and --write: also run the statements at the source.")
]


def onboard(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    source: _Source,
    *,
    metadata: options.Metadata = "metadata",
    connection: _Connection = "",
    landing: _Landing = "",
    lake: _Lake = "",
    schema: _Schemas = None,
    table: options.Tables = None,
    from_: _From = None,
    capture: _Capture = False,
    write: _Write = False,
    apply: _Apply = False,
    json: options.Json = False,
) -> None:
    """Propose metadata rows and keys for all tables of a source, as a diff; exit status 1 if changes are not
    written, or with --apply if the source is not ready."""
    given = OnboardingOptions(
        source=source,
        metadata=metadata,
        connection=connection,
        landing=landing,
        lake=lake,
        schemas=frozenset(schema or ()),
        tables=frozenset(table or ()),
        files=tuple(from_ or ()),
        capture=capture,
        write=write,
        apply=apply,
        as_json=json,
    )
    raise typer.Exit(context.OK if carry_out(context.of(ctx), given) else context.FAILED)


_LandingRoot = Annotated[
    str, typer.Option("--landing", metavar="ROOT", help="Root of the files; default: gddl.yaml's landing.")
]


def inspect(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    landing: _LandingRoot = "",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Check the CDC service's settings by its files, and name the setting to change; exit status 1 on a finding."""
    findings = carry_out_inspect(context.of(ctx), metadata, landing, frozenset(table or ()), as_json=json)
    raise typer.Exit(context.FAILED if findings else context.OK)


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
    yield f"- gddl inspect{place}      # once files are there: is the task set up well?"
    yield f"- gddl run{place}"


_SETTINGS = """\
# Relative roots are relative to this folder. Each value can be set from outside, e.g. GDDL_LAKE.
landing: {landing}
lake: {lake}
"""


@dataclass(frozen=True, kw_only=True)
class OnboardingOptions:
    """The command line as typed; empty: not given."""

    source: str
    metadata: str
    connection: str
    landing: str
    lake: str
    schemas: frozenset[str]
    tables: frozenset[str]
    files: tuple[Path, ...]
    capture: bool
    write: bool
    apply: bool
    as_json: bool


def carry_out(cli: CliContext, given: OnboardingOptions) -> bool:
    """Whether all changes are written.

    Raises:
        GddlError: the source or the metadata can't be read, or the files can't be written.
    """
    check(given)
    folder = open_folder(given.metadata, cli.environ)
    first = _captured_settings(folder, given, cli, _first_settings(folder, given))
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
        return _prepare(cli, given, facts)
    if write and not given.as_json:
        _show_steps(cli, given)
    return True


def _unwritten(given: OnboardingOptions) -> str:
    also = ", and nothing was done at the source" if given.apply else ""
    then = "; then this command shows what the source lacks" if given.capture else ""
    return f"nothing was written{also}; --write does it{then}"


def _show_steps(cli: CliContext, given: OnboardingOptions) -> None:
    loaded, mine = _enabled(cli, given)
    if mine:
        landing = loaded.landings.get(given.source, loaded.roots.landing)
        for line in next_steps(mine, landing, given.metadata, from_database=bool(given.connection)):
            cli.screen.dictate(line)
        _show_dags(cli, loaded, mine)


def _enabled(cli: CliContext, given: OnboardingOptions) -> tuple[LoadedMetadata, list[TableSpec]]:
    """The metadata, and the enabled rows of the source."""
    loaded = load(given.metadata, cli.environ)
    return loaded, [table for table in loaded.tables if table.source == given.source and table.enabled]


def _show_dags(cli: CliContext, loaded: LoadedMetadata, tables: Sequence[TableSpec]) -> None:
    """One line where a DAG that loads the tables is paused, or will be."""
    names = {table.table for table in tables}
    dags = [made.dag_id for made in metadata_folder.pipelines(cli, loaded) if not names.isdisjoint(made.tables)]
    for line in paused.starting(cli.environ, dags, loaded.dag_prefix):
        cli.screen.dictate(f"- {line}")


def _prepare(cli: CliContext, given: OnboardingOptions, facts: SourceFacts) -> bool:
    """Show what the log of the source needs, and do it if asked to; whether nothing that was asked for is left."""
    from airflow_gddl.onboarding import captured  # noqa: PLC0415 - other sources do without it

    loaded, mine = _enabled(cli, given)
    if not mine:
        what = f"{given.source} has no enabled, valid row, so its log was not tried: see `gddl validate`"
        cli.screen.warn(what, "yellow")
        return not given.apply
    rows = {one.table: one.rows for one in facts.tables}
    database = SourceDatabase(given.connection, cli.environ)
    prepared = captured.look(mine, rows, database)
    if given.apply and prepared.lacks.statements:
        statements = prepared.lacks.statements
        try:
            captured.apply(database, statements)
        except GddlError:
            for line in () if given.as_json else captured.to_decide(prepared.lacks):
                cli.screen.dictate(line)
            raise
        prepared = replace(captured.look(mine, rows, database), done=statements)
    if given.as_json:
        for record in captured.records(prepared):
            cli.screen.record(record)
    else:
        for line in captured.lines(prepared):
            cli.screen.dictate(line)
        if prepared.is_ready:
            cli.screen.dictate(f"- gddl run{'' if given.metadata == 'metadata' else f' --metadata {given.metadata}'}")
        _show_dags(cli, loaded, mine)
    return prepared.is_ready or not given.apply


def check(given: OnboardingOptions) -> None:
    """
    Raises:
        MetadataError: `CONNECTION_INVALID`, `SOURCE_INVALID`, `TABLE_NAME_INVALID`.
    """
    require_name(given.connection)
    if given.capture and not given.connection:
        remedy = "name the connection that jobs have, too: --connection GDDL_SOURCE_NAME"
        raise MetadataError("CONNECTION_INVALID", "--capture needs --connection", remedy=remedy)
    if given.apply and not given.capture:
        raise MetadataError("CONNECTION_INVALID", "--apply needs --capture", remedy="leave it out")
    for problem in check_values(TableSpec(table="a.b", keys=(), source=given.source)):
        raise MetadataError(
            problem.code, f"the source {given.source!r:.80} is {problem.message}", remedy=problem.remedy
        )
    check_names(given.tables)


def _first_settings(folder: Folder, given: OnboardingOptions) -> tuple[FileChange, ...]:
    """A new `gddl.yaml` if there is none and its roots were given."""
    if not (given.landing and given.lake):
        return ()
    try:
        folder.read(FILE)
    except FileNotFoundError:
        roots = {name: flow(absolute(root)) for name, root in (("landing", given.landing), ("lake", given.lake))}
        return (FileChange(name=FILE, old=None, new=_SETTINGS.format(**roots)),)
    return ()


def _captured_settings(
    folder: Folder, given: OnboardingOptions, cli: CliContext, first: tuple[FileChange, ...]
) -> tuple[FileChange, ...]:
    """Changes of `gddl.yaml`, with the block of a source whose log jobs read."""
    if not given.capture:
        return first
    from airflow_gddl.onboarding.captured import with_source  # noqa: PLC0415 - as above

    if first:
        (new,) = first
        return (replace(new, new=with_source(new.new, given.source, given.connection)),)
    read_settings(folder, cli.environ)  # which names what is wrong with it
    old = folder.read(FILE).decode()
    new_text = with_source(old, given.source, given.connection)
    return () if new_text == old else (FileChange(name=FILE, old=old, new=new_text),)


def _facts(cli: CliContext, given: OnboardingOptions, settings: Settings) -> SourceFacts:
    if not given.files:
        return _found(cli, given, settings)
    imported = _imported(given.files)
    try:
        found = _found(cli, given, settings)
    except MetadataError as error:
        if given.connection or not imported.selections or error.code != "ONBOARD_NOTHING_FOUND":
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
        MetadataError: `ONBOARD_FORMAT_UNKNOWN`.
    """
    place = f"{__package__}.from_files"
    try:
        reading = import_module(place)
    except ModuleNotFoundError as error:
        what, remedy = "this installation lacks what reads the file of --from", "install all of airflow-gddl"
        raise FatalError("COMMAND_MISSING", what, where=place, remedy=remedy) from error
    try:
        return reading.read({str(path): path.read_text("utf-8-sig") for path in files})
    except (OSError, UnicodeDecodeError) as error:
        raise MetadataError(
            "ONBOARD_FORMAT_UNKNOWN", f"a file can't be read: {error}", remedy="correct --from"
        ) from error


def _found(cli: CliContext, given: OnboardingOptions, settings: Settings) -> SourceFacts:
    if given.connection:
        return Database(given.connection, cli.environ).read(given.schemas, given.tables)
    with needed_by("a proposal without --connection", install="airflow-gddl[local]"):
        from airflow_gddl.onboarding.landing import Landing, read_landing  # noqa: PLC0415 - it imports pyarrow

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
        raise MetadataError("ONBOARD_NOTHING_FOUND", "no table has files of AWS DMS there", where=root, remedy=remedy)
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


_FINDING_STYLES = {"error": "red", "warning": "yellow"}


def carry_out_inspect(
    cli: CliContext, metadata: str, root: str, tables: frozenset[str], *, as_json: bool
) -> tuple[Finding, ...]:
    """Show all findings, and return them.

    Args:
        root: empty: `landing` of the metadata and of its sources; then the metadata is required.
        tables: only these; empty: all.

    Raises:
        MetadataError: `TABLE_NAME_INVALID`, `METADATA_MISSING`, `INSPECT_NOTHING_FOUND`.
        GddlError: the root can't be listed.
    """
    with needed_by("gddl inspect", install="airflow-gddl[local]"):
        from airflow_gddl.onboarding import inspection  # noqa: PLC0415 - it imports pyarrow
        from airflow_gddl.onboarding.landing import Landing  # noqa: PLC0415 - as above

    check_names(tables)
    places, access = _places(cli, metadata, root)
    all_findings: list[Finding] = []
    count = 0
    for place, specs in places.items():
        landing = Landing(place, announced(access, cli.environ))
        # There are no rules for files of other services than DMS and Debezium.
        others = {table for table, spec in specs.items() if spec.dialect != "dms"}
        folders = [folder for folder in landing.folders(tables) if folder.table not in others]
        count += len(folders)
        judged = [
            inspection.judge(inspection.inspect_folder(landing, folder, specs.get(folder.table))) for folder in folders
        ]
        for table, spec in specs.items():
            if spec.dialect == "debezium" and (not tables or table in tables):
                there, findings = inspection.debezium_findings(landing, table, spec)
                count += there
                judged.append(findings)
        all_findings += itertools.chain.from_iterable(judged)
    for finding in all_findings if as_json else ():
        cli.screen.record(finding)
    if not count:
        raise _nothing_found(places, tables)
    if not as_json:
        show(cli.screen, all_findings, count)
    return tuple(all_findings)


def _nothing_found(places: Mapping[str, Mapping[str, TableSpec]], tables: frozenset[str]) -> MetadataError:
    others = {
        f"{table} ({spec.dialect})" for specs in places.values() for table, spec in specs.items()
        if spec.dialect not in ("dms", "debezium") and (not tables or table in tables)
    }  # fmt: skip
    what = "no table has files of AWS DMS or Debezium there"
    if others:
        what += f"; left out, for there are no rules for files of their dialect: {', '.join(sorted(others)[:10])}"
        what += f" and {len(others) - 10} more" if len(others) > 10 else ""
    remedy = "check the root and --table; files lie in <landing>/<schema>/<table>/, named as DMS names them"
    return MetadataError("INSPECT_NOTHING_FOUND", what, where=", ".join(places), remedy=remedy)


def _places(
    cli: CliContext, metadata: str, root: str
) -> tuple[Mapping[str, Mapping[str, TableSpec]], tuple[SourceAccess, ...]]:
    """Landing roots, and the rows below each by their names in the source; an explicit root needs no metadata.

    Also the credentials of roots that have their own.
    """
    explicit_root = absolute(root) if root else ""
    if explicit_root and not is_s3(metadata) and not Path(metadata).is_dir():
        return {explicit_root: {}}, ()
    loaded = load(metadata, cli.environ) if explicit_root else metadata_folder.read(cli, metadata)
    places: dict[str, dict[str, TableSpec]] = {explicit_root: {}} if explicit_root else {loaded.roots.landing: {}}
    if not explicit_root:
        places |= {landing: {} for landing in loaded.landings.values()}
    for spec in loaded.tables:
        for folder in LandingFolder.all_of(loaded.roots, spec):
            if folder.root in places:
                places[folder.root].setdefault(folder.table, spec)
    return places, loaded.access


def show(screen: Screen, findings: list[Finding], tables: int) -> None:
    """Findings by code: meaning and setting once, with the locations below."""
    for code in dict.fromkeys(finding.code for finding in findings):
        mine = [finding for finding in findings if finding.code == code]
        screen.say(f"[{code}] {mine[0].message}", _FINDING_STYLES[mine[0].level])
        screen.say(f"  set: {mine[0].setting}")
        rows: list[list[Cell | str]] = [[one.table, one.file, Cell(one.evidence)] for one in mine]
        screen.table(("table", "file", "seen"), rows)
    ends = f"{counted(len(findings), 'finding')} in {counted(tables, 'table')}"
    screen.say(ends if findings else f"{counted(tables, 'table')}, no findings", "bold" if findings else "green")
