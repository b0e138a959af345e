"""What happened to a key."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow_gddl.contract.actions import Explain
from airflow_gddl.contract.codes import KEY_NOT_FOUND
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from spark_jobs.batch import notices
from spark_jobs.batch.erasable import require_erasable
from spark_jobs.batch.own_tables import require_loaded_tables
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.batch.turns import of_key
from spark_jobs.ledger.cut_changes import cut_before
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import has_few_rows
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.erasure import KeyRows, WantedKey
from spark_jobs.rules.order import that_count
from spark_jobs.rules.verify import (
    key_history,
    key_json,
    replica_records,
    row_facts,
)
from spark_jobs.tables.engine import Engine

_SEARCHED = 1000
"""Unresolved quarantined rows that are searched for the key, oldest first."""
_SHOWN = ("code", "reason", "column", "source_file", "position", "batch_id", "occurred_at", "record")


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """The changes of the key that the job's options name, and what the tables hold of it; see docs/cli.md.

    Before an erasure it raises also what that would raise.

    Raises:
        FatalError: `TABLE_WITHOUT_KEYS`, `KEY_INVALID`, `KEY_NOT_FOUND`, `KEYS_CHANGED`, `TABLES_MISSING`,
            `FIRST_LOAD_UNREADABLE`; before an erasure as `require_erasable`.
    """
    asked = run.job.options.asked(Explain)
    run = of_key(run, asked.key)
    ledger = run.ledger()
    if asked.before_erasure:
        require_erasable(run, run.context(), ledger)
    notices.require_first_load(run.spec.table, ledger)
    notices.require_keyed(run.spec, ledger.state)
    require_same_identity(run.spec, ledger.state)
    context = run.context().suited(few_rows=has_few_rows(ledger.state))
    require_loaded_tables(context, ledger.state)
    table_schema = context.stored_schema(ledger.state)
    wanted = WantedKey.of(run.spec, table_schema, asked.key)
    return run.answer(totals, _details(run, context, table_schema, wanted, ledger))


def _details(
    run: TableRun, context: Engine, table_schema: TableSchema, wanted: WantedKey, ledger: Ledger
) -> dict[str, Any]:
    state, layout = ledger.state, context.layout
    changes, replica, tombstones = (
        _rows(run, context, table_schema, wanted, path)
        for path in (layout.changes, layout.replica, layout.tombstones)
    )  # fmt: skip
    quarantine, erased_at = _quarantined(context, wanted), _erased_at(context, wanted)
    # A table without changes yet has no keys either.
    if (
        changes is None
        or replica is None
        or not (
            changes.count or replica.count or (tombstones and tombstones.count) or quarantine["records"] or erased_at
        )
    ):
        raise FatalError(
            KEY_NOT_FOUND,
            "the table has no change, row, delete or quarantined record of this key",
            where=run.spec.table,
            remedy="write the key as the source has it; `gddl run --dry-run` shows files that were not loaded yet",
        )
    history = key_history(changes.rows, replica.rows, table_schema, wanted.stored, state.swept)
    left_out = changes.count - changes.rows.num_rows
    stored = replica_records(replica.rows, table_schema)
    deletes = [] if tombstones is None else row_facts(tombstones.rows, table_schema)
    return {
        "keys": [key_json(table_schema, wanted.stored)],
        "outcome": history.outcome,
        "verdict": None if left_out else history.verdict,
        "changes": [_plain(asdict(change)) for change in history.changes],
        "left_out": left_out,
        "archived": changes.rows.num_rows - that_count(changes.rows).num_rows,
        "replica": stored,
        "tombstone": deletes[-1] if deletes else None,
        "generation": state.generation,
        "swept": state.swept,
        "quarantine": quarantine,
        # A quarantined record came with the newest change of the row, or later.
        "may_be_stale": any(one["batch_id"] >= row["batch_id"] for one in quarantine["records"] for row in stored),
        "erased_at": erased_at,
        "batch_unfinished": ledger.plan() is not None,
        "changes_cut_before": cut_before(run.runtime.storage, layout.state),
    }


def _rows(run: TableRun, context: Engine, table_schema: TableSchema, wanted: WantedKey, path: str) -> KeyRows | None:
    """Null where there is no table."""
    if not context.tables.exists(path):
        return None
    return context.stored.rows_of_key(path, table_schema, wanted.stored, run.job.options.asked(Explain).limit)


def _plain(change: dict[str, Any]) -> dict[str, Any]:
    return {**change.pop("facts"), **change}


def _quarantined(context: Engine, wanted: WantedKey) -> dict[str, Any]:
    """Unresolved records of the key, how many rows were searched of how many, and the number of unread files."""
    quarantine = context.quarantine
    unresolved = quarantine.unresolved(_SEARCHED)
    return {
        "records": [
            {name: row[name] for name in _SHOWN}
            for row in unresolved.rows
            if row["record"] is not None and wanted.is_in(row["record"])  # files that could not be read have none
        ],
        "searched": len(unresolved.rows),
        "unresolved": unresolved.count,
        "unread_files": quarantine.counts()[1],
    }


def _erased_at(context: Engine, wanted: WantedKey) -> str | None:
    """Time at which the erasure of the key was requested; None: never."""
    erasures = context.erasures
    key_hash = erasures.keys().held(wanted.stored)
    erasure = None if key_hash is None else erasures.read(key_hash)
    return None if erasure is None else erasure.asked_at
