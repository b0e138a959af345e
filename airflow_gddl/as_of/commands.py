"""`gddl as-of`: all tables of a source as it had them at one commit (docs/as-of.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext, of_outcome
from airflow_gddl.cli.job import Request, run_tables
from airflow_gddl.cli.screen import Cell, count, counted, number_columns
from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ConsistentCut
from airflow_gddl.contract.consistent_cut import (
    LATEST,
    Cut,
    CutFacts,
    CutTable,
    asked_moment,
    change_cut,
    chosen,
    cut_path,
    read_cut,
    require_name,
    table_folder,
)
from airflow_gddl.contract.consistent_cut import cuts as all_cuts
from airflow_gddl.contract.errors import FatalError, MetadataError, documented
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage, open_store, remove_table

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

app = Group("All tables of a source as it had them at one commit: make, list and drop such cuts.")
_WAIT = 300.0


class Target(StrEnum):
    TABLES = "tables"
    VIEWS = "views"


class CutSchema(StrEnum):
    THEN = "then"
    NOW = "now"


Source = Annotated[str, typer.Option("--source", metavar="NAME", help="The source whose tables are shown.")]
At = Annotated[
    str, typer.Option("--at", metavar="MOMENT", help="latest, a time with its zone, or a position of the log (LSN).")
]
To = Annotated[Target, typer.Option("--to", help="What is made: Delta tables, or views in a catalog.")]
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="NAME", help="Name of the cut; its tables are in the folder _as_of/NAME.")
]
Again = Annotated[
    str, typer.Option("--again", metavar="NAME", help="Make the cut of this name again, and compare the two.")
]
Columns = Annotated[CutSchema, typer.Option("--schema", help="Columns and types of the moment, or those of today.")]
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a table that another run holds."),
]


@app.callback(invoke_without_command=True)
def as_of(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    source: Source = "",
    at: At = LATEST,
    table: options.Tables = None,
    to: To = Target.TABLES,
    prefix: Prefix = "",
    again: Again = "",
    schema: Columns = CutSchema.THEN,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: Wait = _WAIT,
) -> None:
    """Show all tables of a source as it had them at one commit; a transaction is whole in them, or absent."""
    given = [name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if ctx.invoked_subcommand is not None:
        _require_none(given, f"before {ctx.invoked_subcommand} would have no effect", "write it behind the subcommand")
        return
    if again:
        which = [name for name in given if name in ("source", "at", "table", "schema")]
        _require_none(which, "beside --again would have no effect", "leave it out: the cut that is repeated has it")
    cli = context.of(ctx)
    _require_tables(to)
    require_name(prefix)
    making = _Making(cli, metadata, prefix, json=json, wait=wait)
    if again:
        making.repeat(again)
    making.make(source, at, tuple(table or ()), schema)


@app.command(name="list")
def list_cuts(
    ctx: typer.Context, *, metadata: options.Metadata = "metadata", json: options.Json = False
) -> None:  # fmt: skip
    """List the cuts that the lake has, with their moment, tables and rows."""
    cli = context.of(ctx)
    loaded = metadata_folder.read(cli, metadata)
    cuts = list(all_cuts(open_store(cli.environ), loaded.roots.lake))
    if json:
        cli.screen.records(codec.plain(cut) for cut in cuts)
        return
    rows: list[list[Cell | str]] = [
        [cut.name, cut.source, cut.moment.shown, cut.made_at or Cell("unfinished", "yellow"), count(len(cut.tables)),
         count(sum(one.rows or 0 for one in cut.tables)), count(sum(one.erased for one in cut.tables))]
        for cut in cuts
    ]  # fmt: skip
    cli.screen.table(["cut", "source", "moment", "made at", *number_columns("tables", "rows", "erased")], rows)


@app.command()
def drop(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the cut.")],
    *,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Remove a cut: its tables and its document."""
    require_name(name)
    cli = context.of(ctx)
    loaded = metadata_folder.read(cli, metadata)
    store, lake = open_store(cli.environ), loaded.roots.lake
    cut = change_cut(store, lake, name, lambda known: replace(known, made_at=None))  # unfinished from now on
    _remove(store, lake, cut)
    if json:
        cli.screen.record({"cut": name, "tables": [one.table for one in cut.tables]})
    else:
        cli.screen.say(f"{name}: {counted(len(cut.tables), 'table')} removed")


def _require_none(given: Sequence[str], why: str, remedy: str) -> None:
    """Require that no option is given that nothing would follow.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if given:
        raise MetadataError("OPTION_INVALID", f"--{given[0]} {why}", remedy=remedy)


def _require_tables(to: Target) -> None:
    """
    Raises:
        FatalError: `CUT_VIEWS_UNSUPPORTED`.
    """
    if to is Target.VIEWS:
        what = "views as of a moment are not built"
        remedy = f"make tables, --to tables, and register them; {documented('as-of.md')} has the query of a history"
        raise FatalError("CUT_VIEWS_UNSUPPORTED", what, remedy=remedy)


def _is_of(spec: TableSpec, source: str) -> bool:
    """Whether the table, or a part of it, is of the source: a job refuses those that have several."""
    return spec.source == source or source in spec.shards


def _remove(store: Storage, lake: str, cut: Cut) -> None:
    """Remove the tables, each with its log last, then the document: what is left of a killed command can be dropped."""
    for one in cut.tables:
        remove_table(store, join(lake, one.folder))
        store.prune(join(lake, one.folder), lake)
    store.delete(cut_path(lake, cut.name))


class _Making:
    """A cut that a command makes."""

    def __init__(self, cli: CliContext, metadata: str, name: str, *, json: bool, wait: float) -> None:
        self.cli, self.name, self.metadata, self.json, self.wait = cli, name, metadata, json, wait
        self.loaded: LoadedMetadata = metadata_folder.read(cli, metadata)
        self.store, self.lake = open_store(cli.environ), self.loaded.roots.lake

    def make(self, source: str, at: str, names: Sequence[str], schema: CutSchema) -> NoReturn:
        asked = asked_moment(at)
        specs = self._of_source(source, names)
        self._require_free()
        looked = self._run(specs, ConsistentCut(at=at))
        facts = [codec.decode(CutFacts, job.answer(one)["facts"]) for one in looked]
        moment = chosen(asked, facts)
        tables = tuple(CutTable.of(self.name, one) for one in facts)
        cut = Cut(
            name=self.name, source=source, asked=at, moment=moment, begun_at=self.cli.now().isoformat(), tables=tables,
            schema=schema.value,
        )  # fmt: skip
        self._end(self._write(cut, specs))

    def repeat(self, name: str) -> NoReturn:
        """Make a cut again from the changes that there are now.

        Raises:
            FatalError: `CUT_NOT_SAME`: it has other rows, which were removed; `CUT_MISSING`.
        """
        known = read_cut(self.store, self.lake, name)
        if known.made_at is None:
            what = f"the cut {name} is unfinished: it has no rows to compare with"
            raise FatalError("CUT_MISSING", what, remedy=f"gddl as-of drop {name}, and make it anew")
        specs = self._of_source(known.source, [one.table for one in known.tables])
        self._require_free()
        tables = tuple(
            replace(one, folder=table_folder(self.name, one.table), rows=None, digest="", columns={}, keys={}, erased=0)
            for one in known.tables
        )
        begun = self.cli.now().isoformat()
        cut = replace(known, name=self.name, tables=tables, begun_at=begun, made_at=None, again=name)
        made = self._write(cut, specs)
        other = [
            one.table for one in made.tables
            if (first := known.of(one.table)) is not None and first.digest and first.digest != one.digest
        ]  # fmt: skip
        if other:
            _remove(self.store, self.lake, made)
            what = f"{name} made again has other rows of {', '.join(other)}: changes from before its moment were "
            what += "erased, rewritten, or came later; nothing of it was kept"
            raise FatalError("CUT_NOT_SAME", what, remedy=f"make a new cut at {known.moment.shown}")
        self._end(made, tuple(one.table for one in known.tables if not one.digest))

    def _of_source(self, source: str, names: Sequence[str]) -> tuple[TableSpec, ...]:
        """
        Raises:
            MetadataError: `CUT_SOURCE_UNKNOWN`; as `choose`.
            typer.Exit: rows of the metadata are invalid, so that a table may be missing.
        """
        enabled = [one for one in self.loaded.tables if one.enabled and _is_of(one, source)]
        if not source or not enabled:
            known = ", ".join(sorted({one.source for one in self.loaded.tables if one.enabled}))
            what = f"no enabled table has the source {source!r}" if source else "no source is named"
            raise MetadataError("CUT_SOURCE_UNKNOWN", what, remedy=f"write --source NAME; there are: {known}")
        wanted = list(names) or [one.table for one in enabled]
        specs, bad = metadata_folder.choose(self.cli, self.loaded, wanted, self.metadata)
        if bad or (not names and self.loaded.problems):
            metadata_folder.show_problems(self.cli, list(self.loaded.problems), self.metadata)
            raise typer.Exit(context.BAD_METADATA)
        if others := [one.table for one in specs if not _is_of(one, source)]:
            what = f"{', '.join(others)} have another source than {source}"
            raise MetadataError("CUT_SOURCE_UNKNOWN", what, remedy="name tables of one source")
        return specs

    def _require_free(self) -> None:
        """
        Raises:
            FatalError: `CUT_EXISTS`.
        """
        if self.store.stat(cut_path(self.lake, self.name)) is not None:
            raise self._taken()

    def _taken(self) -> FatalError:
        remedy = f"take another --prefix, or gddl as-of drop {self.name}"
        return FatalError("CUT_EXISTS", f"there is a cut {self.name}", remedy=remedy)

    def _run(self, specs: tuple[TableSpec, ...], action: ConsistentCut) -> tuple[JobResult, ...]:
        """Results of a job for these tables, in their order.

        Raises:
            typer.Exit: a table failed.
        """
        job_options = JobOptions(action=action, wait_seconds=self.wait, full_listing=not action.cut)
        request = Request(metadata=self.metadata, options=job_options)
        outcome = run_tables(self.cli, self.loaded, specs, request)
        if (status := of_outcome(outcome, bad_rows=False)) != context.OK:
            job.show_troubles(self.cli, outcome)
            raise typer.Exit(status)
        by_table = {one.table: one for one in outcome.results}
        return tuple(by_table[one.table] for one in specs)

    def _write(self, cut: Cut, specs: tuple[TableSpec, ...]) -> Cut:
        """Make the tables of a cut; the document is there first, and says last that they are made."""
        path = cut_path(self.lake, cut.name)
        if not self.store.create_once(path, codec.to_json(cut).encode()):
            raise self._taken()
        try:
            results = self._run(specs, ConsistentCut(cut=cut.name))
        except BaseException:
            self._discard(cut)
            raise
        made = [codec.decode(CutTable, job.answer(one)["table"]) for one in results]
        try:
            return change_cut(self.store, self.lake, cut.name, lambda known: self._finished(cut, known, made))
        except FatalError:
            self._discard(cut)
            raise

    def _discard(self, cut: Cut) -> None:
        """Remove what was made of a cut, unless it was dropped and another of its name is there."""
        try:
            is_own = read_cut(self.store, self.lake, cut.name).begun_at == cut.begun_at
        except FatalError as error:
            is_own = error.code == "CUT_MISSING"
        if is_own:
            _remove(self.store, self.lake, cut)

    def _finished(self, cut: Cut, known: Cut, made: Sequence[CutTable]) -> Cut:
        """The document of a cut whose tables are made.

        Args:
            known: as it is now: keys may have been erased from tables that were made first, or tables moved.

        Raises:
            FatalError: `CUT_MISSING`: it was dropped meanwhile, and another of its name is made.
        """
        if known.begun_at != cut.begun_at:
            what = f"the cut {cut.name} was dropped while it was made, and another of its name is made now"
            raise FatalError("CUT_MISSING", what, remedy="take another --prefix")
        by_folder = {one.folder: one for one in made}
        tables = tuple(self._made(one, by_folder[one.folder]) for one in known.tables)
        return replace(cut, tables=tables, made_at=self.cli.now().isoformat())

    @staticmethod
    def _made(known: CutTable, made: CutTable) -> CutTable:
        if known.erased:
            made = replace(made, rows=(made.rows or 0) - known.erased, digest="", erased=known.erased)
        return replace(made, table=known.table)

    def _end(self, cut: Cut, uncompared: Sequence[str] = ()) -> NoReturn:
        if self.json:
            self.cli.screen.record(cut)
        else:
            self._show(cut, uncompared)
        raise typer.Exit(context.OK)

    def _show(self, cut: Cut, uncompared: Sequence[str]) -> None:
        rows: list[list[Cell | str]] = [
            [one.table, join(self.lake, one.folder), count(one.rows), one.commit_ts or ""] for one in cut.tables
        ]
        self.cli.screen.table(["table", "path", *number_columns("rows"), "newest change"], rows)
        same = f", with the rows of {cut.again}" if cut.again else ""
        if uncompared:
            same += f"; not compared: {', '.join(uncompared)}, of which keys were erased since"
        said = f"{cut.name}: {cut.source} as of {cut.moment.shown}, {counted(len(cut.tables), 'table')}{same}"
        self.cli.screen.say(said, "green")
