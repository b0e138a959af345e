"""When rows that a reload lacks are removed, and when that waits for a user's release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from airflow_gddl.contract.durations import wait_seconds
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.planned_batch import (
    BatchPlan,
    HeldSweep,
    TableState,
)
from spark_jobs.plan.source_snapshots import KnownSnapshots, SnapshotRun, is_whole
from spark_jobs.plan.waiting_files import Discovery

SweepState = Literal["none", "pending", "due", "held"]


@dataclass(frozen=True)
class SweepRule:
    """A row's settings of reloads.

    Attributes:
        after: seconds without another load file after which a reload of some files is whole.
        limit: largest share of live rows that is removed without a user's release.
        released: a user says that the reload is whole.
    """

    after: float
    limit: float
    released: bool = False

    @classmethod
    def of(cls, spec: TableSpec) -> SweepRule:
        return cls(float(wait_seconds(spec.sweep_after)), spec.sweep_limit)

    def allows(self, rows: int, live: int) -> bool:
        """Whether so many of the live rows may be swept."""
        return rows <= self.limit * live


RELEASED = SweepRule(after=0.0, limit=1.0, released=True)
"""A user's release: the reload is complete, and rows that it lacks may be removed."""


def sweep_state(state: TableState, discovery: Discovery, rule: SweepRule, now: datetime) -> SweepState:
    """State of the current generation's sweep while no load file waits."""
    if state.is_swept:
        return "none"
    held = state.held
    if held is not None and held.generation == state.generation and not rule.allows(held.rows, held.live):
        return "held"
    return "due" if _is_whole(state, discovery, rule, now) else "pending"


def with_sweep(plan: BatchPlan, discovery: Discovery, rule: SweepRule) -> BatchPlan:
    """A batch with the last load files that wait: it sweeps if these make the load whole, and no time need pass."""
    whole = not discovery.unsettled and (rule.after == 0 or not discovery.older_loads)
    return replace(plan, sweep=plan.sweep and whole)


def held_sweep(plan: BatchPlan, rows: int, live: int, rule: SweepRule) -> HeldSweep | None:
    """What keeps a sweep that would remove `rows` of `live` rows; None: nothing."""
    if plan.released or rule.allows(rows, live):
        return None
    return HeldSweep(generation=plan.generation, rows=rows, live=live, since=plan.planned_at)


def is_due_by_time(state: TableState) -> bool:
    """Whether a pending sweep becomes due without a new file; the rest of a snapshot comes in one."""
    run, known = snapshot_of(state), state.snapshots
    return run is None or known is None or is_whole(known, run, state.max_sequence)


def snapshot_of(state: TableState) -> SnapshotRun | None:
    """The snapshot of the source that has opened the current generation; None: a full load or a missing folder did."""
    return None if state.snapshots is None else state.snapshots.run_of(state.generation)


def _is_whole(state: TableState, discovery: Discovery, rule: SweepRule, now: datetime) -> bool:
    run = snapshot_of(state)
    if run is not None and state.snapshots is not None:
        return rule.released or _is_whole_snapshot(state, state.snapshots, run, discovery, rule, now)
    if discovery.unsettled or discovery.unreadable_loads or any(file.kind == "load" for file in discovery.waiting):
        return False
    if discovery.root_missing:  # whether other load files are there can't be seen
        return False
    if not discovery.older_loads or state.loaded_at is None:
        return True
    return _has_passed(rule, state.loaded_at, now)


def _is_whole_snapshot(
    state: TableState, known: KnownSnapshots, run: SnapshotRun, discovery: Discovery, rule: SweepRule, now: datetime
) -> bool:
    """Rows of other partitions of a topic may come after the end of a snapshot, and nothing tells which is the last."""
    if discovery.unsettled or discovery.unreadable_changes or not is_whole(known, run, state.max_sequence):
        return False
    return len(known.partitions) < 2 or _has_passed(rule, run.continued_at, now)


def _has_passed(rule: SweepRule, since: str, now: datetime) -> bool:
    return (now - datetime.fromisoformat(since)).total_seconds() >= rule.after
