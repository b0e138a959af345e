"""What waits, cut into batches, and what a batch leaves behind; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Literal

from airflow_gddl.contract.durations import seconds, wait_seconds
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.batch import BatchPlan, HeldSweep, PlannedFile, TableState
from spark_jobs.plan.discover import BY_NAME, Discovery, FileTimes, newest
from spark_jobs.plan.snapshots import KnownSnapshots, SnapshotRun, floors_of, is_whole

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


def sweep_state(state: TableState, found: Discovery, rule: SweepRule, now: datetime) -> SweepState:
    """State of the current generation's sweep while no load file waits."""
    if state.generation <= max(state.swept, 1):
        return "none"
    held = state.held
    if held is not None and held.generation == state.generation and not rule.allows(held.rows, held.live):
        return "held"
    return "due" if _is_whole(state, found, rule, now) else "pending"


def with_sweep(plan: BatchPlan, found: Discovery, rule: SweepRule) -> BatchPlan:
    """A batch with the last load files that wait: it sweeps if these make the load whole, and no time need pass."""
    whole = not found.unsettled and (rule.after == 0 or not found.older_loads)
    return replace(plan, sweep=plan.sweep and whole)


def held_sweep(plan: BatchPlan, rows: int, live: int, rule: SweepRule) -> HeldSweep | None:
    """What keeps a sweep that would remove `rows` of `live` rows; null: nothing."""
    if plan.released or rule.allows(rows, live):
        return None
    return HeldSweep(generation=plan.generation, rows=rows, live=live, since=plan.planned_at)


def is_due_by_time(state: TableState, standing: SweepState) -> bool:
    """Whether a pending sweep becomes due without a new file; the rest of a snapshot comes in one."""
    run, known = snapshot_of(state), state.snapshots
    return standing == "pending" and (run is None or known is None or is_whole(known, run, state.max_sequence))


def snapshot_of(state: TableState) -> SnapshotRun | None:
    """The snapshot of the source that has opened the current generation; null: a full load or a missing folder did."""
    return None if state.snapshots is None else state.snapshots.run_of(state.generation)


def _is_whole(state: TableState, found: Discovery, rule: SweepRule, now: datetime) -> bool:
    run = snapshot_of(state)
    if run is not None and state.snapshots is not None:
        return rule.released or _is_whole_snapshot(state, state.snapshots, run, found, rule, now)
    if found.unsettled or found.unreadable_loads or any(file.kind == "load" for file in found.waiting):
        return False
    if not found.older_loads or state.loaded_at is None:
        return True
    return _has_passed(rule, state.loaded_at, now)


def _is_whole_snapshot(
    state: TableState, known: KnownSnapshots, run: SnapshotRun, found: Discovery, rule: SweepRule, now: datetime
) -> bool:
    """Rows of other partitions of a topic may come after the end of a snapshot, and nothing tells which is the last."""
    if found.unsettled or found.unreadable_changes or not is_whole(known, run, state.max_sequence):
        return False
    return len(known.partitions) < 2 or _has_passed(rule, run.continued_at, now)


def _has_passed(rule: SweepRule, since: str, now: datetime) -> bool:
    return (now - datetime.fromisoformat(since)).total_seconds() >= rule.after


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Most files and bytes of a batch, from the tier."""

    max_files: int
    max_bytes: int


def next_batch(
    waiting: Sequence[PlannedFile], *, limits: BatchLimits, state: TableState, now: datetime
) -> BatchPlan | None:
    """The batch after the last committed one; None when nothing waits.

    It holds loads or changes of one generation, from the head of `waiting` (ordered by `discover.find`), within
    the limits but always one file.
    """
    if not waiting:
        return None
    first = waiting[0]
    alike = list(takewhile(lambda file: (file.kind, file.generation) == (first.kind, first.generation), waiting))
    files = _within(alike, limits)
    return BatchPlan(
        number=state.batch + 1,
        mode="initial" if state.batch == 0 or (first.kind == "load" and first.generation == 1) else "incremental",
        planned_at=now.astimezone(UTC).isoformat(timespec="microseconds"),
        generation=max(first.generation, state.generation),
        files=tuple(files),
        sweep=first.kind == "load" and first.generation > 1 and len(files) == len(alike),
    )


def _within(files: Sequence[PlannedFile], limits: BatchLimits) -> list[PlannedFile]:
    taken, size = [files[0]], files[0].size
    for file in files[1:]:
        size += file.size
        if len(taken) >= limits.max_files or size > limits.max_bytes:
            break
        taken.append(file)
    return taken


def state_after(
    plan: BatchPlan,
    state: TableState,
    *,
    landing: str,
    left: Discovery | None = None,
    times: FileTimes = BY_NAME,
) -> TableState:
    """`state` moved on by what `plan` alone gives: batch, generation and its floor, cursor, time of the full listing.

    Args:
        left: the discovery without the plan's files; its full listing counts once nothing of it waits, so that a crash
            in between lists in full again. None for a plan found from an earlier run.
    """
    listed = left.listed_in_full_at if left is not None and not left.waiting else None
    names = [file.path.removeprefix(f"{landing.rstrip('/')}/") for file in plan.files if file.kind == "change"]
    return replace(
        state,
        batch=plan.number,
        generation=plan.generation,
        loaded_at=plan.planned_at if any(file.kind == "load" for file in plan.files) else state.loaded_at,
        held=state.held if plan.generation == state.generation else None,
        snapshots=plan.snapshots or state.snapshots,
        openings=_openings_after(plan, state.openings if left is None else left.openings),
        generation_floor=generation_low_watermarks_of(plan, state),
        cursor=newest(times, names, datetime.fromisoformat(plan.planned_at), state.cursor),
        oldest=min(filter(None, (*map(times.of, names), state.oldest)), default=None),
        listed_in_full_at=listed or state.listed_in_full_at,
    )


def generation_low_watermarks_of(plan: BatchPlan, state: TableState) -> tuple[str | None, ...]:
    """Highest sequence ingested before each generation, including the plan's; of one that a snapshot has opened, its
    place in the log, before which all earlier changes are.
    """
    known = plan.snapshots or state.snapshots
    new = plan.generation - len(state.generation_floor)
    return floors_of((*state.generation_floor, *((state.max_sequence,) * new)), known)


def _openings_after(plan: BatchPlan, openings: tuple[str, ...]) -> tuple[str, ...]:
    """None once the last generation that they report is open: from then on a rewritten file opens one."""
    return openings if plan.generation <= len(openings) else ()


def tombstones_since(spec: TableSpec, now: datetime) -> datetime:
    """Tombstones of deletes that were applied before this time are removed, by a batch once a day or maintenance."""
    return now - timedelta(seconds=seconds(spec.tombstone_retention))
