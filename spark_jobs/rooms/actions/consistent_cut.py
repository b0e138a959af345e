"""One table of a cut: up to where it is complete, or the table as of the cut's moment (docs/as-of.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ConsistentCut
from airflow_gddl.contract.codes import CUT_MISSING, CUT_REFUSED, CUT_TABLE_CHANGED
from airflow_gddl.contract.consistent_cut import Cut, CutTable, read_cut
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import remove_table
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.cut_changes import last_cut
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rooms.actions.consistent_cut_facts import facts_of
from spark_jobs.rooms.actions.consistent_cut_rows import (
    CutRule,
    Included,
    as_of,
    columns_of,
    make,
    overtaken,
    scanned,
    unplaced_truncates,
)
from spark_jobs.tables.delta_log import DeltaCommits

if TYPE_CHECKING:
    from spark_jobs.tables.delta_tables import Tables


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Say what is known of the table, or make it as of the moment of a cut; in the result's details, under a name.

    Raises:
        FatalError: as `facts_of`; `CUT_MISSING`, `CUT_REFUSED`.
        RetriableError: `TABLE_BUSY`, `CUT_TABLE_CHANGED`.
    """
    asked = run.job.options.asked(ConsistentCut)
    if not asked.cut:
        return run.answer(totals, {"facts": codec.plain(facts_of(run, asked.at))})
    cut = read_cut(run.runtime.storage, run.job.roots.lake, asked.cut)
    entry = cut.of(run.spec.table)
    if entry is None:
        what = f"the cut {cut.name} has no table {run.spec.table}"
        raise FatalError(CUT_MISSING, what, where=run.spec.table, remedy="make the cut again")
    return run.answer(totals, {"table": codec.plain(_made(run, cut, entry))})


def _made(run: TableRun, cut: Cut, entry: CutTable) -> CutTable:
    """Write the table, in one commit, once what goes into it is proven to be whole."""
    context, path = run.context(), join(run.job.roots.lake, entry.folder)
    tables = context.whole_tables_of(run.layout.changes)
    version = tables.existing(run.layout.changes).log.version
    _require_only_more(run, entry.version, version)
    state = run.ledger().state
    if state.generation != entry.generation:
        what = f"{run.spec.table} was loaded again while the cut was made"
        raise RetriableError(CUT_TABLE_CHANGED, what, where=run.spec.table, remedy="make the cut again")
    included = _included(run, cut, entry, tables)
    run.report("decide", rows=included.changes)
    columns = columns_of(included, state, included.rule.schema)
    remove_table(run.runtime.storage, path)  # of a command that was killed
    rows = make(tables, run.layout.changes, path, included.rule, columns, context.tier)
    run.report("replica", rows=rows)
    _require_still_wanted(run, cut, path, version)
    names = tuple(column.name for column in columns if column.name != GDDL)
    return replace(entry, rows=rows, columns=names, commit_ts=included.commit_ts)


def _included(run: TableRun, cut: Cut, entry: CutTable, tables: Tables) -> Included:
    """What a cut has of the table, once that is proven to be whole.

    Raises:
        FatalError: `CUT_REFUSED`.
    """
    state = run.ledger().state
    schema = replace(run.context().stored_schema(state), swept=entry.generation)
    rule = CutRule(
        schema=as_of(schema, cut.moment), kind=cut.moment.kind, bound=cut.moment.bound, generation=entry.generation,
        least=entry.least,
    )  # fmt: skip
    included = scanned(tables, run.layout.changes, rule)
    _require_whole(run, state, included)
    if included.are_mixed and (keys := overtaken(tables, run.layout.changes, rule)):
        what = f"{run.title}: of {keys} keys, a change with an earlier commit time follows one with a later one"
        remedy = "the source's clock went back then, or its times are not those of commits: take another moment"
        raise FatalError(CUT_REFUSED, what, where=run.layout.changes, remedy=remedy)
    return included


def _require_still_wanted(run: TableRun, cut: Cut, path: str, version: int) -> None:
    """Require that no row was erased, and the cut not dropped, while the table was made; else it is removed.

    An erasure removes keys from the tables of cuts that are there by then; one that began before is seen here.

    Args:
        path: of the table.
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
        raise RetriableError(CUT_TABLE_CHANGED, what, where=path, remedy="make the cut again")


def _require_whole(run: TableRun, state: TableState, included: Included) -> None:
    """Require that the rows of the change table allow a table as of the moment.

    Raises:
        FatalError: `CUT_REFUSED`: changes without a place, some of those before the moment may be gone, or they were
            read from the source again later.
    """
    unplaced = included.unplaced + unplaced_truncates(state, included.rule.kind)
    reasons = {
        "have no place in the order of transactions": unplaced,
        "from before the moment are archived: no file held them at a reload": included.archived,
        "were read from the source again by a resync, later than their place says": included.resynced,
    }
    for why, count in reasons.items():
        if count:
            what, remedy = f"{run.title}: {count} changes {why}", "take a later moment, or leave it out, by --table"
            raise FatalError(CUT_REFUSED, what, where=run.layout.changes, remedy=remedy)
    cut = last_cut(run.runtime.storage, run.layout.state)
    oldest = included.oldest_excluded
    if cut is not None and oldest is not None and oldest <= cut.at:
        what = f"{run.title}: changes_retention has removed changes ({cut.at}) that were superseded after the moment"
        remedy = "take a later moment; a longer changes_retention keeps changes for later cuts"
        raise FatalError(CUT_REFUSED, what, where=run.layout.changes, remedy=remedy)
    if (gone := included.truncates_gone(state)) is not None:
        what = f"{run.title}: the ledger keeps the newest {gone} truncates of the source, all after the moment"
        raise FatalError(CUT_REFUSED, what, remedy="take a later moment; tables with history: true keep all")
