"""Tables of cuts follow an erasure of a key, and the name of their table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.consistent_cut import Cut, CutTable, cut_path, cuts_folder
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.erasable import KEY_CODE
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.table_run import TableRun
from spark_jobs.rules.erasure import WantedKey


class ConsistentCuts(Feature):
    def forget_rows(self, run: TableRun) -> None:
        """Remove the erased key from the tables of cuts; their documents say so."""
        for cut, entry in _cuts_with(run, run.spec.table):
            context = run.context()
            path = join(run.job.roots.lake, entry.folder)
            if not context.engine.tables.exists(path):
                continue
            schema = context.stored_schema(run.ledger().state)
            wanted = WantedKey.of(run.spec, schema, run.job.options.asked(Erase).key, KEY_CODE)
            removed = context.engine.eraser(context).remove_key(path, schema, wanted.stored)
            if removed:
                _write(
                    run,
                    cut.having(
                        replace(entry, rows=(entry.rows or 0) - removed, digest="", erased=entry.erased + removed)
                    ),
                )

    def move(self, run: TableRun, new: TableSpec) -> None:
        for cut, entry in _cuts_with(run, run.spec.table):
            tables = (replace(one, table=new.table) if one is entry else one for one in cut.tables)
            _write(run, replace(cut, tables=tuple(tables)))


FEATURE = ConsistentCuts()


def _cuts_with(run: TableRun, table: str) -> Iterator[tuple[Cut, CutTable]]:
    """Cuts that have a table, with its entry."""
    storage, lake = run.runtime.storage, run.job.roots.lake
    for item in list(storage.list(cuts_folder(lake))):
        cut = codec.from_json(Cut, storage.read(item.path).decode())
        if (entry := cut.of(table)) is not None:
            yield cut, entry


def _write(run: TableRun, cut: Cut) -> None:
    run.runtime.storage.write(cut_path(run.job.roots.lake, cut.name), codec.to_json(cut).encode())
