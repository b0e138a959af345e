"""Rows with `shadow`: a share of their batches is compared with Spark's `MERGE` before its commit.

Why so: docs/decisions/delta-files-and-commits.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.features.shadow import HELD_CODE, DifferentKey, ShadowDifference, share_of
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.merge import MergedBatch
from spark_jobs.batch.pending import Batch
from spark_jobs.batch.session import TableSession
from spark_jobs.batch.table_run import TableRun
from spark_jobs.features.shadow.counting import CommitCheck, not_compared
from spark_jobs.features.shadow.kept import KeptDifferences
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.tables.places import DeclinedError


class Shadow(Feature):
    def before_batch(self, table: TableSession, batch: Batch) -> None:
        """Let Spark's MERGE commit while a difference waits for a person; else compare the batch, if it is chosen."""
        table.context = replace(table.context, before_commit=None)
        chosen = is_chosen(share_of(table.spec, table.run.tier), table.spec.table, batch.plan)
        if waiting := KeptDifferences.of(table.run).open():
            self._commit_by_merge(table, len(waiting))
            reason = "held"
        elif chosen:
            reason = reason_not_to(table, batch)
        if not chosen:
            return
        if reason:
            not_compared(table, reason)
            return
        if table.run.in_one_task:
            raise DeclinedError("shadow compares this batch with Spark's MERGE")
        from spark_jobs.features.shadow.comparison import BatchComparison  # noqa: PLC0415 - a place may have no Spark

        comparison = BatchComparison(table, batch, table.run.runtime.spark.for_table)
        table.context = replace(table.context, before_commit=comparison)

    def _commit_by_merge(self, table: TableSession, waiting: int) -> None:
        if table.run.in_one_task:
            raise DeclinedError("shadow found a difference, so that Spark's MERGE commits the table's batches")
        table.context = replace(table.context, tier=replace(table.context.tier, commit="merge"))
        message = (
            "shadow found differences that nobody has decided on: Spark's MERGE commits the table's batches until "
        )
        message += f"`gddl shadow release --table {table.spec.table} --reason TEXT`"
        table.totals.warnings.pop(HELD_CODE, None)
        table.note([RunWarning(code=HELD_CODE, message=message, count=waiting)])

    def after_commit(self, table: TableSession, merged: MergedBatch) -> None:
        if isinstance(comparison := table.context.before_commit, CommitCheck):
            comparison.end(merged)

    def forget_rows(self, run: TableRun) -> None:
        """An erased key is in no difference any more."""
        KeptDifferences.of(run).forget_values()

    def reason_not_to_move(self, run: TableRun) -> tuple[str, str] | None:
        """Both sides of an open difference name data files, which are gone once a person looks."""
        if not (waiting := KeptDifferences.of(run).open()):
            return None
        table = run.spec.table
        remedy = (
            f"see `gddl shadow show --table {table}`, then `gddl shadow release --table {table} --reason TEXT`, and "
            "move it again"
        )
        return f"shadow found differences that nobody has decided on ({len(waiting)})", remedy

    def move(self, run: TableRun, new: TableSpec) -> None:
        KeptDifferences.of(run).move(KeptDifferences.of(replace(run, spec=new)), new.table)

    def explain(self, run: TableRun, key: Mapping[str, str]) -> tuple[str, ...]:
        """Both rows of the key, of each difference that has it."""
        lines: list[str] = []
        for found, decided in KeptDifferences.of(run).all():
            for one in found.keys:
                values = {name: str(value) for name, value in json.loads(one.key).items()}
                if all(values.get(name) == value for name, value in key.items()):
                    lines += _lines_of(found, one, decided=decided)
        return tuple(lines)

    def clean(self, run: TableRun) -> int:
        before = run.runtime.clock() - timedelta(seconds=seconds(run.spec.vacuum_retention))
        return KeptDifferences.of(run).remove_sides(before)


FEATURE = Shadow()


def _lines_of(found: ShadowDifference, one: DifferentKey, *, decided: bool) -> list[str]:
    state, columns = "decided" if decided else "open", ", ".join(one.columns) or "the whole row"
    title = f"shadow, batch {found.batch_id}, {found.kind} ({state}), differs in {columns}:"
    return [title, f"  ours   {one.ours or 'no row'}", f"  Spark  {one.spark or 'no row'}"]


def is_chosen(share: float, table: str, plan: BatchPlan) -> bool:
    """Whether a batch is compared; the same for each attempt, since a plan is written once."""
    digest = hashlib.blake2b(f"{table} {plan.batch_id} {plan.planned_at}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 < share


def reason_not_to(table: TableSession, batch: Batch) -> str:
    """Why a batch is not compared, as far as that is known before it is read; empty: it is."""
    plan, state, tier = batch.plan, table.state, table.context.tier
    reasons = {
        "first_load": not state.batch,
        "full_load": _is_of_load(plan, state),
        "merge": tier.commit == "merge",
        "no_spark": table.run.in_one_task and table.run.tier.in_processes,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _is_of_load(plan: BatchPlan, state: TableState) -> bool:
    return plan.sweep or plan.generation != state.generation or any(file.kind == "load" for file in plan.files)
