"""`gddl as-of`: tables of a source as it had them at one commit (docs/as-of.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext, of_outcome
from airflow_gddl.cli.job import run_tables
from airflow_gddl.cli.screen import Cell, count, counted, number_columns
from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ConsistentCut
from airflow_gddl.contract.codes import CUT_MISSING, OPTION_INVALID
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
)
from airflow_gddl.contract.consistent_cut import cuts as all_cuts
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage, open_store, remove_table

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

app = Group("Tables of a source as it had them at one commit: make, list and drop such cuts.")
_WAIT = 300.0


Source = Annotated[str, typer.Option("--source", metavar="NAME", help="The source whose tables are shown.")]
At = Annotated[
    str, typer.Option("--at", metavar="MOMENT", help="latest, a time with its zone, or a position of PostgreSQL's log.")
]
CutName = Annotated[
    str,
    typer.Option("--name", metavar="NAME", help="Name of the cut: its tables are in the folder _as_of/NAME."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cut.")]
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
    name: CutName = "",
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: Wait = _WAIT,
) -> None:
    """Show all tables of a source as it had them at one commit; a transaction is whole in them, or absent."""
    if ctx.invoked_subcommand is not None:
        given = [name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
        if given:
            what = f"--{given[0]} before {ctx.invoked_subcommand} would have no effect"
            raise MetadataError(OPTION_INVALID, what, remedy="write it after the subcommand")
        return
    cli = context.of(ctx)
    require_name(name)
    loaded = metadata_folder.read(cli, metadata)
    making = _Making(cli, metadata, loaded, open_store(cli.environ), name, wait)
    cut = making.make(source, at, tuple(table or ()))
    if json:
        cli.screen.record(cut)
    else:
        _show(cli, loaded.roots.lake, cut)


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
        [cut.name, cut.source, cut.moment.shown, cut.made_at or Cell("unfinished", "yellow"),
         count(len(cut.tables)), count(sum(one.rows or 0 for one in cut.tables))]
        for cut in cuts
    ]  # fmt: skip
    cli.screen.table(["cut", "source", "moment", "made at", *number_columns("tables", "rows")], rows)


@app.command()
def drop(
    ctx: typer.Context, name: Name, *, metadata: options.Metadata = "metadata", json: options.Json = False
) -> None:  # fmt: skip
    """Remove a cut: its tables, and its document."""
    require_name(name)
    cli = context.of(ctx)
    store, lake = open_store(cli.environ), metadata_folder.read(cli, metadata).roots.lake
    cut = change_cut(store, lake, name, lambda known: replace(known, made_at=None))  # unfinished from now on
    _remove(store, lake, cut)
    if json:
        cli.screen.record({"cut": name, "tables": [one.table for one in cut.tables]})
        return
    cli.screen.say(f"{name}: {counted(len(cut.tables), 'table')} removed")


def _remove(store: Storage, lake: str, cut: Cut) -> None:
    """Remove the tables, each with its log last, and last the document: what is left of a killed command can be
    dropped."""
    for one in cut.tables:
        remove_table(store, join(lake, one.folder))
        store.prune(join(lake, one.folder), lake)
    store.delete(cut_path(lake, cut.name))


def _show(cli: CliContext, lake: str, cut: Cut) -> None:
    rows: list[list[Cell | str]] = [
        [one.table, join(lake, one.folder), count(one.rows), one.commit_ts or ""] for one in cut.tables
    ]
    cli.screen.table(["table", "path", *number_columns("rows"), "newest change"], rows)
    cli.screen.say(f"{cut.name}: {cut.source} as of {cut.moment.shown}, {counted(len(cut.tables), 'table')}", "green")


def _is_of(spec: TableSpec, source: str) -> bool:
    """Whether the table, or a part of it, is of the source."""
    return spec.source == source or source in spec.shards


@dataclass(frozen=True)
class _Making:
    """A cut that a command makes, with jobs for its tables.

    Attributes:
        name: of the cut.
        wait: seconds to wait for a table that another run holds.
    """

    cli: CliContext
    metadata: str
    loaded: LoadedMetadata
    store: Storage
    name: str
    wait: float

    @property
    def lake(self) -> str:
        return self.loaded.roots.lake

    def make(self, source: str, at: str, names: Sequence[str]) -> Cut:
        asked = asked_moment(at)
        specs = self._of_source(source, names)
        if self.store.stat(cut_path(self.lake, self.name)) is not None:
            raise self._taken()
        facts = [codec.decode(CutFacts, job.answer(one)["facts"]) for one in self._run(specs, ConsistentCut(at=at))]
        tables = tuple(CutTable.of(self.name, one) for one in facts)
        cut = Cut(
            name=self.name, source=source, asked=at, moment=chosen(asked, facts),
            begun_at=self.cli.now().isoformat(), tables=tables,
        )  # fmt: skip
        return self._write(cut, specs)

    def _of_source(self, source: str, names: Sequence[str]) -> tuple[TableSpec, ...]:
        """
        Raises:
            MetadataError: `OPTION_INVALID`; as `choose`.
            typer.Exit: rows of the metadata are invalid, so that a table may be missing.
        """
        enabled = [one for one in self.loaded.tables if one.enabled and _is_of(one, source)]
        if not source or not enabled:
            named = (name for one in self.loaded.tables if one.enabled for name in (one.source, *one.shards))
            known = ", ".join(sorted(set(named)))
            what = f"no enabled table has the source {source!r}" if source else "no source is named"
            raise MetadataError(OPTION_INVALID, what, remedy=f"write --source NAME; there are: {known}")
        wanted = list(names) or [one.table for one in enabled]
        specs, bad = metadata_folder.choose(self.cli, self.loaded, wanted, self.metadata)
        if bad or (not names and self.loaded.problems):
            metadata_folder.show(self.cli.screen, self.loaded.problems, self.metadata)
            raise typer.Exit(context.BAD_METADATA)
        if others := [one.table for one in specs if not _is_of(one, source)]:
            what = f"{', '.join(others)} have another source than {source}"
            raise MetadataError(OPTION_INVALID, what, remedy="name tables of one source")
        return specs

    def _taken(self) -> FatalError:
        remedy = f"take another --name, or `gddl as-of drop {self.name}`"
        return FatalError(OPTION_INVALID, f"there is a cut {self.name}", remedy=remedy)

    def _run(self, specs: Sequence[TableSpec], action: ConsistentCut) -> tuple[JobResult, ...]:
        """Results of a job for these tables, in their order.

        Raises:
            typer.Exit: a table failed.
        """
        job_options = JobOptions(action=action, wait_seconds=self.wait, full_listing=not action.cut)
        outcome = run_tables(self.cli, self.loaded, tuple(specs), job_options)
        if (status := of_outcome(outcome, bad_rows=False)) != context.OK:
            job.show_troubles(self.cli, outcome)
            if failed := ", ".join(one.table for one in outcome.results if one.error is not None):
                what = f"nothing was made: a cut has all of its tables, and of {failed} it can't be made"
                self.cli.screen.warn(f"{what}; --table names the tables of a cut without it", "red")
            raise typer.Exit(status)
        by_table = {one.table: one for one in outcome.results}
        return tuple(by_table[one.table] for one in specs)

    def _write(self, cut: Cut, specs: Sequence[TableSpec]) -> Cut:
        """Make the tables of a cut; the document is there first, and says last that they are made.

        Raises:
            FatalError: `OPTION_INVALID`, `CUT_MISSING`: nothing of it is kept.
            RetriableError: `CUT_TABLE_CHANGED`.
        """
        if not self.store.create_once(cut_path(self.lake, cut.name), codec.to_json(cut).encode()):
            raise self._taken()
        try:
            results = self._run(specs, ConsistentCut(cut=cut.name))
            made = [codec.decode(CutTable, job.answer(one)["table"]) for one in results]
            return change_cut(self.store, self.lake, cut.name, lambda known: self._finished(known, cut, made))
        except BaseException:
            self._discard(cut)
            raise

    def _finished(self, known: Cut, begun: Cut, made: Sequence[CutTable]) -> Cut:
        """The document with its tables as they were made.

        Args:
            known: as it is now.

        Raises:
            FatalError: `CUT_MISSING`: it was dropped meanwhile, and another of its name is made.
        """
        if known.begun_at != begun.begun_at:
            what = f"the cut {begun.name} was dropped while it was made, and another of its name is made now"
            raise FatalError(CUT_MISSING, what, remedy="take another --name")
        return replace(known, tables=tuple(made), made_at=self.cli.now().isoformat())

    def _discard(self, cut: Cut) -> None:
        """Remove what was made of a cut, unless it was dropped and another of its name is there."""
        try:
            known = read_cut(self.store, self.lake, cut.name)
        except FatalError as error:
            if error.code == CUT_MISSING:
                _remove(self.store, self.lake, cut)
            return
        if known.begun_at == cut.begun_at:
            _remove(self.store, self.lake, known)
