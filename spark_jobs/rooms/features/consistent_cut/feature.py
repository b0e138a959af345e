"""Tables of cuts follow an erasure of a key; masks that come later are named."""

from __future__ import annotations

from collections.abc import Collection

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.codes import CUT_KEYS_CHANGED, CUTS_UNMASKED
from airflow_gddl.contract.consistent_cut import cuts, key_forms
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.table_run import TableRun
from spark_jobs.rules.erasure import WantedKey


class ConsistentCuts(Feature):
    def forget_rows(self, run: TableRun) -> None:
        """Remove the erased key from the tables of cuts.

        Raises:
            FatalError: `CUT_KEYS_CHANGED`, once all other cuts have lost the key.
        """
        context, others = run.context(), list[str]()
        schema = context.stored_schema(run.ledger().state)
        wanted = WantedKey.of(run.spec, schema, run.job.options.asked(Erase).key)
        for cut in cuts(run.runtime.storage, run.job.roots.lake):
            entry = cut.of(run.spec.table)
            if entry is None or not context.tables.exists(path := join(run.job.roots.lake, entry.folder)):
                continue
            if entry.keys == key_forms(run.spec):
                context.eraser.remove_key(path, schema, wanted.stored)
            else:
                others.append(cut.name)
        if others:
            what = (
                f"{run.spec.table} had other keys, or masks of them, when {', '.join(others)} was made: nothing tells "
                "which of its rows are erased; the key is in no other table"
            )
            remedy = f"`gddl as-of drop {others[0]}`, then erase again"
            raise FatalError(CUT_KEYS_CHANGED, what, where=run.spec.table, remedy=remedy)

    def shows_withheld(self, run: TableRun, columns: Collection[str]) -> Warnings:
        """`CUTS_UNMASKED`: tables of cuts stay as they are."""
        names = lowered(columns)
        entries = ((cut.name, cut.of(run.spec.table)) for cut in cuts(run.runtime.storage, run.job.roots.lake))
        kept = [name for name, one in entries if one and names & lowered(one.columns)]
        if not kept:
            return ()
        message = f"cuts keep the values that {', '.join(sorted(columns))} had when they were made; "
        message += f"`gddl as-of drop {kept[0]}` removes one, then make it again"
        return (RunWarning(code=CUTS_UNMASKED, message=message, count=len(kept), sample=tuple(kept[:5])),)


FEATURE = ConsistentCuts()
