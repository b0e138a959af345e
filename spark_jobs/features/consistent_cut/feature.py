"""Tables of cuts follow an erasure of a key, and the name of their table; masks that come later are named."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.consistent_cut import Cut, CutTable, change_cut, cuts, key_forms
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch.erasable import KEY_CODE
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.erasure import WantedKey, with_key

if TYPE_CHECKING:
    from spark_jobs.tables.engine import TableContext
    from spark_jobs.tables.one_task import TablesEngine


class ConsistentCuts(Feature):
    def expect_erasure(self, run: TableRun) -> None:
        """Count the rows that cuts have of the key: once they are erased, nothing tells them from rows that were lost
        otherwise, and an erasure that was killed is repeated."""
        storage, lake, key = run.runtime.storage, run.job.roots.lake, _Erased(run)
        for cut in cuts(storage, lake):
            entry = cut.of(run.spec.table)
            if entry is None or entry.rows is None or entry.keys != key_forms(run.spec) or key.hash in entry.erasing:
                continue
            if count := key.rows_of(join(lake, entry.folder)):
                change_cut(storage, lake, cut.name, partial(_erasing, entry.folder, key.hash, count))

    def forget_rows(self, run: TableRun) -> None:
        """Remove the erased key from the tables of cuts; their documents say so.

        Raises:
            FatalError: `CUT_KEYS_CHANGED`, once all other cuts have lost the key.
        """
        storage, lake, others = run.runtime.storage, run.job.roots.lake, list[str]()
        key = _Erased(run)
        for cut in cuts(storage, lake):
            entry = cut.of(run.spec.table)
            if entry is None:
                continue
            path, engine = join(lake, entry.folder), key.context.engine
            if not engine.tables.exists(path):
                continue
            if entry.keys != key_forms(run.spec):
                others.append(cut.name)
                continue
            removed = engine.eraser(key.context).remove_key(path, key.schema, key.wanted.stored)
            if key.hash in entry.erasing:  # counted before the first attempt
                change_cut(storage, lake, cut.name, partial(_erased, entry.folder, key.hash))
            elif removed:  # the cut was made since
                change_cut(storage, lake, cut.name, partial(_without, entry.folder, removed))
        if others:
            what = (
                f"{run.spec.table} had other keys, or masks of them, when {', '.join(others)} was made: nothing tells "
                "which of its rows are erased; the key is in no other table"
            )
            remedy = f"`gddl as-of drop {others[0]}`, then erase again"
            raise FatalError("CUT_KEYS_CHANGED", what, where=run.spec.table, remedy=remedy)

    def shows_withheld(self, run: TableRun, columns: Collection[str]) -> tuple[RunWarning, ...]:
        """`CUTS_UNMASKED`: tables of cuts stay as they are."""
        names = lowered(columns)
        entries = ((cut.name, cut.of(run.spec.table)) for cut in cuts(run.runtime.storage, run.job.roots.lake))
        kept = [name for name, one in entries if one and names & lowered(one.columns)]
        if not kept:
            return ()
        message = f"cuts keep the values that {', '.join(sorted(columns))} had when they were made; "
        message += f"`gddl as-of drop {kept[0]}` removes one, then make it again"
        return (RunWarning(code="CUTS_UNMASKED", message=message, count=len(kept), sample=tuple(kept[:5])),)

    def move(self, run: TableRun, new: TableSpec) -> None:
        storage, lake = run.runtime.storage, run.job.roots.lake
        for cut in cuts(storage, lake):
            if (entry := cut.of(run.spec.table)) is not None:
                change_cut(storage, lake, cut.name, partial(_named, entry.folder, new.table))


FEATURE = ConsistentCuts()


@dataclass(frozen=True)
class _Erased:
    """The key that an erasure removes, which is found once for all cuts."""

    run: TableRun

    @cached_property
    def context(self) -> TableContext:
        return self.run.context()

    @cached_property
    def schema(self) -> TableSchema:
        return self.context.stored_schema(self.run.ledger().state)

    @cached_property
    def wanted(self) -> WantedKey:
        return WantedKey.of(self.run.spec, self.schema, self.run.job.options.asked(Erase).key, KEY_CODE)

    @cached_property
    def hash(self) -> str:
        """As the record of the erasure has it."""
        return self.context.erasures.salted().hash_of(self.wanted.stored)

    def rows_of(self, path: str) -> int:
        """Number of its rows in a table of a cut."""
        if not self.context.engine.tables.exists(path):
            return 0
        tables = cast("TablesEngine", self.context.engine).whole_tables_of(self.context, path)
        return sum(with_key(rows, self.schema, self.wanted.stored).num_rows for rows in tables.each_file(path))


def _erasing(folder: str, erasure: str, count: int, cut: Cut) -> Cut:
    """With the rows of a table that an erasure is about to remove."""
    if any(one.folder == folder and erasure in one.erasing for one in cut.tables):
        return cut
    noted = _with(folder, cut, lambda one: replace(one, erasing=(*one.erasing, erasure)))
    return _without(folder, count, noted)


def _erased(folder: str, erasure: str, cut: Cut) -> Cut:
    """With an erasure that has ended."""
    return _with(
        folder, cut, lambda one: replace(one, erasing=tuple(other for other in one.erasing if other != erasure))
    )


def _without(folder: str, removed: int, cut: Cut) -> Cut:
    """With so many rows fewer of a table; what is not made yet has no number of rows."""

    def less(one: CutTable) -> CutTable:
        rows = None if one.rows is None else one.rows - removed
        return replace(one, rows=rows, digest="", erased=one.erased + removed)

    return _with(folder, cut, less)


def _named(folder: str, table: str, cut: Cut) -> Cut:
    return _with(folder, cut, lambda one: replace(one, table=table))


def _with(folder: str, cut: Cut, change: Callable[[CutTable], CutTable]) -> Cut:
    """With one table changed."""
    return replace(cut, tables=tuple(change(one) if one.folder == folder else one for one in cut.tables))
