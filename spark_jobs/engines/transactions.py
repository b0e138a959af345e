"""Delta transactions of a batch: the same names and versions in all engines, so that one ends what another began."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spark_jobs.plan.batch import BatchPlan

APPEND, QUARANTINE, TOMBSTONES, MERGE, SWEEP, HISTORY = (
    f"gddl:{step}" for step in ("append", "quarantine", "tombstones", "merge", "sweep", "history")
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def version_of(plan: BatchPlan) -> int:
    """Microseconds of the plan's time since 1970.

    Plans of a table are ever later (`planning.moment`), those of a ledger begun anew too: a table that remembers the
    transactions of a lost ledger takes none of the new ones for one of those.
    """
    return round((datetime.fromisoformat(plan.planned_at) - _EPOCH) / timedelta(microseconds=1))


def user_metadata(app: str, version: int) -> str:
    """What a commit of a transaction carries, so that its metrics are found again."""
    return f"gddl {app} {version}"
