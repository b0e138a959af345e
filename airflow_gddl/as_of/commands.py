"""`gddl as-of`: all tables of a source as it had them at one commit (docs/as-of.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    SAME_CODE,
    Cut,
    CutFacts,
    CutTable,
    asked_moment,
    change_cut,
    chosen,
    cut_path,
    cut_tables,
    read_cut,
    require_name,
    table_folder,
)
from airflow_gddl.contract.consistent_cut import cuts as all_cuts
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.stores import open_store, remove_table

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

app = Group("All tables of a source as it had them at one commit: make, list, verify and drop such cuts.")
_WAIT = 300.0


class CutSchema(StrEnum):
    THEN = "then"
    NOW = "now"


Source = Annotated[str, typer.Option("--source", metavar="NAME", help="The source whose tables are shown.")]
At = Annotated[
    str,
    typer.Option("--at", metavar="MOMENT", help="latest, a time with its zone, or a position of the log (LSN, SCN)."),
]
Prefix = Annotated[
    str,
    typer.Option("--prefix", metavar="NAME", help="Name of the cut: its tables are in the folder _as_of/NAME."),
]
Again = Annotated[
    str, typer.Option("--again", metavar="NAME", help="Make the cut of this name again, and compare the two.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cut.")]
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
    require_name(prefix)
    making = _Making(_Lake(cli, metadata, wait=wait), prefix, json=json)
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
        [cut.name, cut.source, cut.moment.shown, cut.made_at or Cell("unfinished", "yellow"),
         count(len(cut.tables)),
         count(sum(one.rows or 0 for one in cut.tables)), count(sum(one.erased for one in cut.tables))]
        for cut in cuts
    ]  # fmt: skip
    titles = ("cut", "source", "moment", "made at")
    cli.screen.table([*titles, *number_columns("tables", "rows", "erased")], rows)


@app.command()
def verify(
    ctx: typer.Context,
    name: Name,
    *,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: Wait = _WAIT,
) -> None:
    """Compare the rows that a cut's tables have now with those that they were made with."""
    require_name(name)
    cli = context.of(ctx)
    lake = _Lake(cli, metadata, wait=wait)
    cut = lake.finished(name)
    compared = [one for one in cut.tables if one.digest]
    outcome = lake.outcome(lake.specs_of(compared), ConsistentCut(cut=name, then="compare")) if compared else None
    results = {one.table: one for one in outcome.results} if outcome else {}
    found = Verified.of(compared, results)
    known = read_cut(lake.store, lake.lake, name)
    found = replace(found, not_compared=tuple(one.table for one in known.tables if not one.digest))
    if json:
        cli.screen.record(found.plain(name))
    else:
        _show_verified(cli, name, found)
    if outcome:
        job.show_troubles(cli, outcome)
    if found.different:
        what = f"{', '.join(found.different)} of {name} have other rows than when the cut was made"
        remedy = f"make a new cut at {cut.moment.shown}; `gddl as-of drop {name}`"
        cli.screen.warn(str(FatalError(SAME_CODE, what, remedy=remedy)), "red")
        raise typer.Exit(context.FAILED)
    raise typer.Exit(context.OK if outcome is None else of_outcome(outcome, bad_rows=False))


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a comparison of a cut's tables with its document has found.

    Attributes:
        versions: of tables with the rows of the document, the version of what was read.
        changed: tables with other rows; `failed`: those that can't be read, with the error of each.
        not_compared: keys were erased since, or meanwhile.
    """

    versions: Mapping[str, int]
    changed: tuple[str, ...]
    failed: Mapping[str, ErrorInfo]
    not_compared: tuple[str, ...] = ()

    @classmethod
    def of(cls, compared: Sequence[CutTable], results: Mapping[str, JobResult]) -> Verified:
        failed = {one.table: error for one in compared if (error := results[one.table].error) is not None}
        held = {one: job.answer(result) for one, result in results.items() if one not in failed}
        digests = {one.table: one.digest for one in compared}
        versions = {table: one["version"] for table, one in held.items() if one["digest"] == digests[table]}
        changed = tuple(table for table in held if table not in versions)
        return cls(versions=versions, changed=changed, failed=failed)

    @property
    def equal(self) -> list[str]:
        return sorted(set(self.versions) - set(self.not_compared))

    @property
    def different(self) -> list[str]:
        return sorted(set(self.changed) - set(self.not_compared))

    def plain(self, name: str) -> dict[str, object]:
        return {
            "cut": name, "equal": self.equal, "different": self.different, "not_compared": list(self.not_compared),
            "failed": {table: error.code for table, error in self.failed.items()},
        }  # fmt: skip


def _show_verified(cli: CliContext, name: str, found: Verified) -> None:
    if found.equal:
        cli.screen.say(f"{name}: {', '.join(found.equal)} as when the cut was made", "green")
    if found.not_compared:
        cli.screen.say(
            f"{name}: not compared: {', '.join(found.not_compared)}, of which keys were erased since", "yellow"
        )


@app.command()
def drop(
    ctx: typer.Context,
    name: Name,
    *,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: Wait = _WAIT,
) -> None:
    """Remove a cut: its tables, and its document."""
    require_name(name)
    cli = context.of(ctx)
    lake = _Lake(cli, metadata, wait=wait)
    cut = change_cut(lake.store, lake.lake, name, lambda known: replace(known, made_at=None))  # unfinished from now on
    lake.remove(cut)
    if json:
        cli.screen.record({"cut": name, "tables": [one.table for one in cut.tables]})
        return
    cli.screen.say(f"{name}: {counted(len(cut.tables), 'table')} removed")


def _require_none(given: Sequence[str], why: str, remedy: str) -> None:
    """Require that no option is given that nothing would follow.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if given:
        raise MetadataError("OPTION_INVALID", f"--{given[0]} {why}", remedy=remedy)


def _is_of(spec: TableSpec, source: str) -> bool:
    """Whether the table, or a part of it, is of the source; it is shown with the parts of its other sources."""
    return spec.source == source or source in spec.shards


class _Lake:
    """A lake with its cuts, and jobs for their tables."""

    def __init__(self, cli: CliContext, metadata: str, *, wait: float) -> None:
        self.cli, self.metadata, self.wait = cli, metadata, wait
        self.loaded: LoadedMetadata = metadata_folder.read(cli, metadata)
        self.store, self.lake = open_store(cli.environ), self.loaded.roots.lake

    def run(self, specs: Sequence[TableSpec], action: ConsistentCut) -> tuple[JobResult, ...]:
        """Results of a job for these tables, in their order.

        Raises:
            typer.Exit: a table failed.
        """
        outcome = self.outcome(specs, action)
        if (status := of_outcome(outcome, bad_rows=False)) != context.OK:
            job.show_troubles(self.cli, outcome)
            failed = ", ".join(one.table for one in outcome.results if one.error is not None)
            if action.then == "make" and failed:
                what = f"nothing was made: a cut has all of its tables, and of {failed} it can't be made"
                self.cli.screen.warn(f"{what}; --table names the tables of a cut without it", "red")
            raise typer.Exit(status)
        by_table = {one.table: one for one in outcome.results}
        return tuple(by_table[one.table] for one in specs)

    def outcome(self, specs: Sequence[TableSpec], action: ConsistentCut) -> JobOutcome:
        """A job for these tables, of which some may have failed."""
        job_options = JobOptions(action=action, wait_seconds=self.wait, full_listing=not action.cut)
        request = Request(metadata=self.metadata, options=job_options)
        return run_tables(self.cli, self.loaded, tuple(specs), request)

    def finished(self, name: str) -> Cut:
        """
        Raises:
            FatalError: `CUT_MISSING`.
        """
        known = read_cut(self.store, self.lake, name)
        if known.made_at is None:
            what = f"the cut {name} is unfinished: it has no rows to compare with"
            raise FatalError("CUT_MISSING", what, remedy=f"`gddl as-of drop {name}`, and make it anew")
        return known

    def specs_of(self, tables: Iterable[CutTable]) -> tuple[TableSpec, ...]:
        """Rows of tables of a cut.

        Raises:
            MetadataError: `CUT_SOURCE_UNKNOWN`: the metadata has no such row any more.
        """
        known = {one.table: one for one in self.loaded.tables}
        names = [one.table for one in tables]
        if gone := [name for name in names if name not in known]:
            what = f"the metadata has no valid row of {', '.join(gone)}, by which its part of the cut is found"
            raise MetadataError(
                "CUT_SOURCE_UNKNOWN", what, remedy="put the row back, enabled: false, until it is dropped"
            )
        return tuple(known[name] for name in names)

    def remove(self, cut: Cut) -> None:
        """Remove the tables, each with its log last, and last the document: what is left of a killed command can be
        dropped."""
        for one in cut.tables:
            remove_table(self.store, join(self.lake, one.folder))
            self.store.prune(join(self.lake, one.folder), self.lake)
        self.store.delete(cut_path(self.lake, cut.name))


class _Making:
    """A cut that a command makes."""

    def __init__(self, lake: _Lake, name: str, *, json: bool) -> None:
        self.of, self.name, self.json = lake, name, json
        self.cli, self.loaded, self.store, self.lake = lake.cli, lake.loaded, lake.store, lake.lake

    def make(self, source: str, at: str, names: Sequence[str], schema: CutSchema) -> NoReturn:
        asked = asked_moment(at)
        specs = self._of_source(source, names)
        self._require_free()
        looked = self.of.run(specs, ConsistentCut(at=at))
        facts = [codec.decode(CutFacts, answer) for one in looked for answer in job.answer(one)["facts"]]
        moment = chosen(asked, facts)
        tables = cut_tables(self.name, facts)
        cut = Cut(
            name=self.name, source=source, asked=at, moment=moment, begun_at=self.cli.now().isoformat(), tables=tables,
            schema=schema.value,
        )  # fmt: skip
        self._end(self._write(cut, specs))

    def repeat(self, name: str) -> NoReturn:
        """Make a cut again from the changes that there are now.

        Raises:
            FatalError: `CUT_NOT_SAME`: it has other rows, which were removed; `CUT_MISSING`.
            MetadataError: as `_Lake.specs_of`.
        """
        known = self.of.finished(name)
        specs = self.of.specs_of(known.tables)
        self._require_free()
        tables = tuple(
            replace(
                one, folder=table_folder(self.name, one.table), rows=None, digest="", columns={}, keys={}, erased=0
            )
            for one in known.tables
        )  # fmt: skip
        begun = self.cli.now().isoformat()
        cut = replace(known, name=self.name, tables=tables, begun_at=begun, made_at=None, again=name)
        self._end(self._write(cut, specs, known), tuple(one.table for one in known.tables if not one.digest))

    def _of_source(self, source: str, names: Sequence[str]) -> tuple[TableSpec, ...]:
        """
        Raises:
            MetadataError: `CUT_SOURCE_UNKNOWN`; as `choose`.
            typer.Exit: rows of the metadata are invalid, so that a table may be missing.
        """
        enabled = [one for one in self.loaded.tables if one.enabled and _is_of(one, source)]
        if not source or not enabled:
            named = (name for one in self.loaded.tables if one.enabled for name in (one.source, *one.shards))
            known = ", ".join(sorted(set(named)))
            what = f"no enabled table has the source {source!r}" if source else "no source is named"
            raise MetadataError("CUT_SOURCE_UNKNOWN", what, remedy=f"write --source NAME; there are: {known}")
        wanted = list(names) or [one.table for one in enabled]
        specs, bad = metadata_folder.choose(self.cli, self.loaded, wanted, self.of.metadata)
        if bad or (not names and self.loaded.problems):
            metadata_folder.show_problems(self.cli, list(self.loaded.problems), self.of.metadata)
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
        remedy = f"take another --prefix, or `gddl as-of drop {self.name}`"
        return FatalError("CUT_EXISTS", f"there is a cut {self.name}", remedy=remedy)

    def _write(self, cut: Cut, specs: tuple[TableSpec, ...], first: Cut | None = None) -> Cut:
        """Make the tables of a cut; the document is there first, and says last that they are made.

        Args:
            first: the cut whose rows this one has to have; None: it is no repetition.

        Raises:
            FatalError: `CUT_EXISTS`, `CUT_NOT_SAME`, `CUT_MISSING`: nothing of it is kept.
            RetriableError: `CUT_TABLE_CHANGED`.
        """
        path = cut_path(self.lake, cut.name)
        if not self.store.create_once(path, codec.to_json(cut).encode()):
            raise self._taken()
        try:
            results = self.of.run(specs, ConsistentCut(cut=cut.name))
            made = [codec.decode(CutTable, job.answer(one)["table"]) for one in results]
            noted = self._change(cut, lambda known: self._noted(known, made))
            if first is not None:
                _require_same(first, noted)
            return self._change(cut, lambda known: replace(known, made_at=self.cli.now().isoformat()))
        except BaseException:
            self.discard(cut)
            raise

    def discard(self, cut: Cut) -> None:
        """Remove what was made of a cut, unless it was dropped and another of its name is there."""
        try:
            known = read_cut(self.store, self.lake, cut.name)
        except FatalError as error:
            if error.code == "CUT_MISSING":
                self.of.remove(cut)
            return
        if known.begun_at == cut.begun_at:
            self.of.remove(known)

    def _change(self, cut: Cut, change: Callable[[Cut], Cut]) -> Cut:
        """Change the document of the cut that is made.

        Raises:
            FatalError: `CUT_MISSING`: it was dropped meanwhile, and another of its name is made.
        """

        def own(known: Cut) -> Cut:
            if known.begun_at == cut.begun_at:
                return change(known)
            what = f"the cut {cut.name} was dropped while it was made, and another of its name is made now"
            raise FatalError("CUT_MISSING", what, remedy="take another --prefix")

        return change_cut(self.store, self.lake, cut.name, own)

    def _noted(self, known: Cut, made: Sequence[CutTable]) -> Cut:
        """The document with its tables as they were made.

        Args:
            known: as it is now: keys may have been erased from tables that were made first, or tables moved.
        """
        by_folder = {one.folder: one for one in made}
        return replace(known, tables=tuple(self._made(one, by_folder[one.folder]) for one in known.tables))

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
            [one.table, join(self.lake, one.folder), count(one.rows), one.commit_ts or ""]
            for one in cut.tables
        ]  # fmt: skip
        same = f", with the rows of {cut.again}" if cut.again else ""
        if uncompared:
            same += f"; not compared: {', '.join(uncompared)}, of which keys were erased since"
        said = f"{cut.name}: {cut.source} as of {cut.moment.shown}, {counted(len(cut.tables), 'table')}{same}"
        self.cli.screen.table(["table", "path", *number_columns("rows"), "newest change"], rows)
        self.cli.screen.say(said, "green")


def _require_same(first: Cut, again: Cut) -> None:
    """
    Raises:
        FatalError: `CUT_NOT_SAME`.
    """
    digests = {one.table: one.digest for one in first.tables}
    other = [one.table for one in again.tables if (digest := digests.get(one.table)) and digest != one.digest]
    if other:
        what = f"{first.name} made again has other rows of {', '.join(other)}: changes from before its moment were "
        what += "erased, rewritten, or came later; nothing of it was kept"
        raise FatalError(SAME_CODE, what, remedy=f"make a new cut at {first.moment.shown}")
