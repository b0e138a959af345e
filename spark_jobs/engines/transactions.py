"""Delta transactions of a batch: the same in all engines, so that one engine can finish a batch of another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from spark_jobs.plan.batch import BatchPlan

APPEND, QUARANTINE, TOMBSTONES, MERGE, SWEEP, HISTORY = (
    f"gddl:{step}" for step in ("append", "quarantine", "tombstones", "merge", "sweep", "history")
)
REWRITE = "refresh:rewrite"
"""The change table by the row's current settings."""
REFRESH = "refresh:"
"""Prefix of the steps of a full refresh."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def version_of(plan: BatchPlan) -> int:
    """Microseconds of the plan's time since 1970.

    Plan times of a table always increase (`next_batch.moment`), also those of a new ledger: a table that has the
    transactions of a lost ledger never mistakes a new one for an old one.
    """
    return round((datetime.fromisoformat(plan.planned_at) - _EPOCH) / timedelta(microseconds=1))


def app_of(app: str, shard: str) -> str:
    """The name of a step's transactions; each shard of a table has its own.

    Plans of shards are made and carried on in any order, so that the versions of one say nothing of another's.
    """
    return f"{app}@{shard}" if shard else app


def user_metadata(app: str, version: int, metrics: Mapping[str, int] | None = None) -> str:
    """User metadata of a transaction's commit, by which its metrics are found.

    Args:
        metrics: stated here, where another writer states those of the commit.
    """
    return f"gddl {app} {version}{f' {json.dumps(metrics)}' if metrics else ''}"


def is_later(transactions: Mapping[str, int], shard: str, known: int) -> bool:
    """Whether transactions of a commit are of a later plan of the table, or shard, than the ledger knows.

    Sweeps don't count: a plan without readable files may be dropped after its sweep.

    Args:
        known: version of the ledger's newest plan.
    """
    kept = {app_of(step, shard) for step in (APPEND, TOMBSTONES, MERGE, HISTORY)}
    return any(version > known and (app in kept or app.startswith(REFRESH)) for app, version in transactions.items())
