"""Tables and views of cuts follow an erasure of a key; masks that come later are named."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.consistent_cut import Cut, CutTable, change_cut, cuts, key_forms, require_view
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch.erasable import KEY_CODE
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.erasure import WantedKey, with_key
from spark_jobs.rules.view_rows import ViewRule
from spark_jobs.tables.held_rows import HeldRows, shown

if TYPE_CHECKING:
    from spark_jobs.tables.delta_tables import Tables
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
            if entry.view is None:
                if count := key.rows_of(join(lake, entry.folder)):
                    change_cut(storage, lake, cut.name, partial(_erasing, entry.folder, key.hash, count))
                continue
            if (tables := key.history_of(entry)) is None:
                continue
            of_key = partial(with_key, schema=key.schema, key=key.wanted.stored)
            found = shown(tables, ViewRule.of(entry.view, entry.columns), of_key)
            change_cut(storage, lake, cut.name, partial(_expected, entry.folder, key.hash, found))

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
            if entry.view is not None:
                _of_view(key, cut, entry)
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
        """`CUTS_UNMASKED`: tables of cuts stay as they are. Views show what the history has."""
        names = lowered(columns)
        entries = ((cut.name, cut.of(run.spec.table)) for cut in cuts(run.runtime.storage, run.job.roots.lake))
        kept = [name for name, one in entries if one and one.view is None and names & lowered(one.columns)]
        if not kept:
            return ()
        message = f"cuts keep the values that {', '.join(sorted(columns))} had when they were made; "
        message += f"`gddl as-of drop {kept[0]}` removes one, then make it again"
        return (RunWarning(code="CUTS_UNMASKED", message=message, count=len(kept), sample=tuple(kept[:5])),)


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

    def history_of(self, entry: CutTable) -> Tables | None:
        """The tables to read a view's history by; None: it is at another place, or gone."""
        path = require_view(entry).path
        if path != self.run.layout.history or not self.context.engine.tables.exists(path):
            return None
        return cast("TablesEngine", self.context.engine).whole_tables_of(self.context, path)


def _of_view(key: _Erased, cut: Cut, entry: CutTable) -> None:
    """Once the key is erased, let a view that was not there before say that it has lost rows."""
    storage, lake = key.run.runtime.storage, key.run.job.roots.lake
    if entry.rows is None:
        change_cut(storage, lake, cut.name, partial(_stale, entry.folder))
    elif key.hash in entry.erasing:
        change_cut(storage, lake, cut.name, partial(_erased, entry.folder, key.hash))
    elif (tables := key.history_of(entry)) is not None:
        removed = entry.rows - shown(tables, ViewRule.of(require_view(entry), entry.columns)).rows
        if removed > 0:
            change_cut(storage, lake, cut.name, partial(_without, entry.folder, removed))


def _stale(folder: str, cut: Cut) -> Cut:
    """With a view that is proven meanwhile, and has to be proven again."""
    return _with(folder, cut, lambda one: replace(one, view=one.view and replace(one.view, is_stale=True)))


def _expected(folder: str, erasure: str, found: HeldRows, cut: Cut) -> Cut:
    """With the rows of a view that an erasure is about to remove.

    Args:
        found: what the view shows now; where that is not what it was made with, its digest stays, so that the
            difference is found whatever is erased.
    """

    def counted(one: CutTable) -> CutTable:
        if erasure in one.erasing or one.rows is None:
            return one
        digest = "" if found.of_key and found.digest == one.digest else one.digest
        return replace(
            one, rows=one.rows - found.of_key, erased=one.erased + found.of_key, digest=digest,
            erasing=(*one.erasing, erasure),
        )  # fmt: skip

    return _with(folder, cut, counted)


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


def _with(folder: str, cut: Cut, change: Callable[[CutTable], CutTable]) -> Cut:
    """With one table changed."""
    return replace(cut, tables=tuple(change(one) if one.folder == folder else one for one in cut.tables))
