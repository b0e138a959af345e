"""One table of a cut: up to where it is complete, or the table as of the cut's moment (docs/as-of.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ConsistentCut
from airflow_gddl.contract.consistent_cut import (
    AMBIGUOUS_CODE,
    CHANGES_CODE,
    LOAD_CODE,
    Cut,
    CutStart,
    CutTable,
    key_forms,
    read_cut,
)
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import remove_table
from spark_jobs.actions.consistent_cut_facts import facts_of, tables_of
from spark_jobs.actions.consistent_cut_rows import (
    CutRule,
    Included,
    as_of,
    columns_of,
    make,
    overtaken,
    scanned,
    unplaced_truncates,
)
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.cut_changes import last_cut
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.held_rows import held

if TYPE_CHECKING:
    from spark_jobs.tables.delta_tables import Tables


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Say what is known of the table, or make it as of the moment of a cut; in the result's details, under a name.

    Raises:
        FatalError: as `facts_of`; `CUT_MISSING`, `CUT_MOMENT_AMBIGUOUS`.
        RetriableError: `TABLE_BUSY`, `CUT_TABLE_CHANGED`.
    """
    asked = run.job.options.asked(ConsistentCut)
    if not asked.cut:
        facts = facts_of(run, asked.at)
        return run.result(totals, status="succeeded", details={"facts": [codec.plain(one) for one in facts]})
    cut = read_cut(run.runtime.storage, run.job.roots.lake, asked.cut)
    entry = cut.of(run.spec.table)
    if entry is None:
        what = f"the cut {cut.name} has no table {run.spec.table}"
        raise FatalError("CUT_MISSING", what, where=run.spec.table, remedy="make the cut again")
    details = _ACTIONS[asked.then](run, cut, entry)
    return run.result(totals, status="succeeded", details=details)


def _make(run: TableRun, cut: Cut, entry: CutTable) -> dict[str, Any]:
    return {"table": codec.plain(_made(run, cut, entry))}


def _compare(run: TableRun, cut: Cut, entry: CutTable) -> dict[str, Any]:
    """What the table holds now, to be compared with the document.

    Raises:
        FatalError: `TABLES_MISSING`.
    """
    try:
        return _held(run, entry)
    except FileNotFoundError as error:
        what = f"files of {run.spec.table} in the cut {cut.name} are missing: {error}"
        raise FatalError(
            "TABLES_MISSING", what, where=run.spec.table, remedy=f"`gddl as-of drop {cut.name}`"
        ) from error


def _held(run: TableRun, entry: CutTable) -> dict[str, Any]:
    path = join(run.job.roots.lake, entry.folder)
    found = held(tables_of(run.context(), path), path)
    return {"rows": found.rows, "digest": found.digest, "version": found.version}


_ACTIONS: Mapping[str, Callable[[TableRun, Cut, CutTable], dict[str, Any]]] = {
    "make": _make, "compare": _compare,
}  # fmt: skip


def _made(run: TableRun, cut: Cut, entry: CutTable) -> CutTable:
    """Write the table, in one commit, once what goes into it is proven to be whole."""
    context, path = run.context(), join(run.job.roots.lake, entry.folder)
    tables = tables_of(context, run.layout.changes)
    version = tables.existing(run.layout.changes).log.version
    if not cut.again:  # else the digests say whether anything is otherwise
        _require_only_more(run, entry.version, version)
    runs = _runs(run, cut, entry)
    parts = [_part(runs[shard], cut, start, tables) for shard, start in entry.starts.items()]
    run.report("decide", rows=sum(part.included.changes for part in parts))
    schema, included = parts[0].schema, [part.included for part in parts]
    others = (one.ledger().state for shard, one in runs.items() if shard not in entry.starts)
    columns = columns_of(((part.included, part.state) for part in parts), others, schema, now=cut.schema == "now")
    remove_table(run.runtime.storage, path)  # of a command that was killed
    made = make(tables, run.layout.changes, path, [one.rule for one in included], columns, context.tier)
    run.report("replica", rows=made.rows)
    _require_still_wanted(run, cut, path, version)
    return replace(
        entry, rows=made.rows, digest=made.digest, columns=made.columns,
        sequence=None if entry.shards else included[0].sequence,
        commit_ts=max((one.commit_ts for one in included if one.commit_ts is not None), default=None),
        keys=key_forms(run.spec),
    )  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """A table, or one of its sources, with what a cut has of it.

    Attributes:
        schema: as it is now.
    """

    state: TableState
    schema: TableSchema
    included: Included


def _runs(run: TableRun, cut: Cut, entry: CutTable) -> dict[str, TableRun]:
    """Runs of the sources that the table has or had, as `CutTable.starts` names them.

    Raises:
        FatalError: `CUT_CHANGES_MISSING`: the ledger of a source that the cut has is gone; `SHARDS_CHANGED`.
    """
    run.ledger()  # which refuses a table that was loaded otherwise
    runs = {one.shard: one for one in (*run.shard_runs(), *run.former_shards)} if entry.shards else {"": run}
    if lost := sorted(entry.starts.keys() - runs.keys()):
        what = f"{run.spec.table}: nothing is known any more of {', '.join(lost)}, of which the cut has rows"
        raise FatalError(CHANGES_CODE, what, where=run.spec.table, remedy=f"`gddl as-of drop {cut.name}`")
    return runs


def _part(run: TableRun, cut: Cut, start: CutStart, tables: Tables) -> _Part:
    """What a cut has of a table or source, once that is proven to be whole.

    Raises:
        FatalError: as `_require_whole`; `CUT_MOMENT_AMBIGUOUS`.
    """
    state = run.ledger().state
    schema = replace(run.context().stored_schema(state), swept=start.generation)
    rule = CutRule(
        schema=as_of(schema, cut.moment, start.generation), kind=cut.moment.kind, bound=cut.moment.bound,
        generation=start.generation, least=start.least
    )  # fmt: skip
    included = scanned(tables, run.layout.changes, rule)
    _require_whole(run, state, included)
    if included.are_mixed and (keys := overtaken(tables, run.layout.changes, rule)):
        what = f"{run.title}: of {keys} keys, a change with an earlier commit time follows one with a later one"
        remedy = "the source's clock went back then, or its times are not those of commits: take another moment"
        raise FatalError(AMBIGUOUS_CODE, what, where=run.layout.changes, remedy=remedy)
    return _Part(state, schema, included)


def _require_still_wanted(run: TableRun, cut: Cut, path: str, version: int) -> None:
    """Require that no row was erased, and the cut not dropped, while the table was made; else it is removed.

    An erasure removes keys from the tables of cuts that are there by then; one that began before is seen here.

    Args:
        path: of the table; empty: nothing was written.
        version: of the change table that was read.

    Raises:
        RetriableError: `CUT_TABLE_CHANGED`.
        FatalError: `CUT_MISSING`.
    """
    storage = run.runtime.storage
    try:
        _require_only_more(run, version, DeltaCommits(storage).version(run.layout.changes) or 0)
        read_cut(storage, run.job.roots.lake, cut.name)
    except GddlError:
        if path:
            remove_table(storage, path)
        raise


def _require_only_more(run: TableRun, version: int, now: int) -> None:
    """Require that the change table only got more changes between two versions.

    Raises:
        RetriableError: `CUT_TABLE_CHANGED`.
    """
    path = run.layout.changes
    commits = DeltaCommits(run.runtime.storage).since(path, version) if now > version else []
    if now < version or commits is None or any(one.changes_data and one.removed for one in commits):
        what = f"changes of {run.spec.table} were rewritten while the cut was made"
        raise RetriableError("CUT_TABLE_CHANGED", what, where=path, remedy="make the cut again")


def _require_whole(run: TableRun, state: TableState, included: Included) -> None:
    """Require that the rows of the change table allow a table as of the moment.

    Raises:
        FatalError: `CUT_CHANGES_MISSING`: changes without a place, or some of those before the moment may be gone;
            `CUT_BEFORE_LOAD`.
    """
    reasons: Mapping[str, tuple[int, str]] = {
        "have no place in the order of transactions": (
            included.unplaced + unplaced_truncates(state, included.rule),
            CHANGES_CODE,
        ),
        "from before the moment are archived: no file held them at a reload": (included.archived, CHANGES_CODE),
        "were read from the source again by a resync, later than their place says": (included.resynced, LOAD_CODE),
    }
    for why, (count, code) in reasons.items():
        if count:
            remedy = "take a later moment, or leave the table out, by --table"
            raise FatalError(code, f"{run.title}: {count} changes {why}", where=run.layout.changes, remedy=remedy)
    cut = last_cut(run.runtime.storage, run.layout.state)
    oldest = included.oldest_excluded
    if cut is not None and oldest is not None and oldest <= cut.at:
        what = f"{run.title}: changes_retention has removed changes ({cut.at}) that were superseded after the moment"
        remedy = "take a later moment; a longer changes_retention keeps changes for later cuts"
        raise FatalError(CHANGES_CODE, what, where=run.layout.changes, remedy=remedy)
    if (gone := included.truncates_gone(state)) is not None:
        what = f"{run.title}: the ledger keeps the newest {gone} truncates of the source, all after the moment"
        raise FatalError(CHANGES_CODE, what, remedy="take a later moment; tables with history: true keep all")
