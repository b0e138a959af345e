"""Tables and views of cuts follow an erasure of a key, and the name of their table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.consistent_cut import Cut, CutTable, change_cut, cuts, key_forms, require_view
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.erasable import KEY_CODE
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.table_run import TableRun
from spark_jobs.rules.erasure import WantedKey
from spark_jobs.rules.view_rows import ViewRule
from spark_jobs.tables.held_rows import shown

if TYPE_CHECKING:
    from spark_jobs.tables.one_task import TablesEngine


class ConsistentCuts(Feature):
    def forget_rows(self, run: TableRun) -> None:
        """Remove the erased key from the tables of cuts; their documents say so.

        Raises:
            FatalError: `CUT_KEYS_CHANGED`, once all other cuts have lost the key.
        """
        storage, lake, others = run.runtime.storage, run.job.roots.lake, list[str]()
        for cut in cuts(storage, lake):
            entry = cut.of(run.spec.table)
            if entry is None:
                continue
            if entry.view is not None:
                _note_view(run, cut, entry)
                continue
            context = run.context()
            path = join(lake, entry.folder)
            if not context.engine.tables.exists(path):
                continue
            if entry.keys != key_forms(run.spec):
                others.append(cut.name)
                continue
            schema = context.stored_schema(run.ledger().state)
            wanted = WantedKey.of(run.spec, schema, run.job.options.asked(Erase).key, KEY_CODE)
            if removed := context.engine.eraser(context).remove_key(path, schema, wanted.stored):
                change_cut(storage, lake, cut.name, partial(_without, entry.folder, removed))
        if others:
            what = (
                f"{run.spec.table} had other keys, or masks of them, when {', '.join(others)} was made: nothing tells "
                "which of its rows are erased; the key is in no other table"
            )
            remedy = f"gddl as-of drop {others[0]}, then erase again"
            raise FatalError("CUT_KEYS_CHANGED", what, where=run.spec.table, remedy=remedy)

    def move(self, run: TableRun, new: TableSpec) -> None:
        storage, lake = run.runtime.storage, run.job.roots.lake
        for cut in cuts(storage, lake):
            if (entry := cut.of(run.spec.table)) is not None:
                change_cut(storage, lake, cut.name, partial(_named, entry.folder, new.table))


FEATURE = ConsistentCuts()


def _note_view(run: TableRun, cut: Cut, entry: CutTable) -> None:
    """Let the document say which rows a view has lost: those that its history has."""
    storage, lake = run.runtime.storage, run.job.roots.lake
    view = require_view(entry)
    if entry.rows is None:
        change_cut(storage, lake, cut.name, partial(_stale, entry.folder))
        return
    context = run.context()
    if view.path != run.layout.history or not context.engine.tables.exists(view.path):
        return
    tables = cast("TablesEngine", context.engine).whole_tables_of(context, view.path)
    removed = entry.rows - shown(tables, ViewRule.of(view, entry.columns)).rows
    if removed > 0:
        change_cut(storage, lake, cut.name, partial(_without, entry.folder, removed))


def _stale(folder: str, cut: Cut) -> Cut:
    """With a view that is proven meanwhile, and has to be proven again."""
    tables = (
        replace(one, view=replace(one.view, is_stale=True)) if one.folder == folder and one.view else one
        for one in cut.tables
    )
    return replace(cut, tables=tuple(tables))


def _without(folder: str, removed: int, cut: Cut) -> Cut:
    """With so many rows fewer of a table; what is not made yet has no number of rows."""

    tables = (
        replace(one, rows=None if one.rows is None else one.rows - removed, digest="", erased=one.erased + removed)
        if one.folder == folder else one
        for one in cut.tables
    )  # fmt: skip
    return replace(cut, tables=tuple(tables))


def _named(folder: str, table: str, cut: Cut) -> Cut:
    return replace(cut, tables=tuple(replace(one, table=table) if one.folder == folder else one for one in cut.tables))
