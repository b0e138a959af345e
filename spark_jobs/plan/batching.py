"""How waiting files are cut into batches, the state that a batch leaves, and limits of what is read at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile

from airflow_gddl.contract.layout import below
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.plan.file_times import BY_NAME, FileTimes, newest
from spark_jobs.plan.planned_batch import (
    BatchPlan,
    GenerationFloor,
    PlannedFile,
    TableState,
    floors_of,
)
from spark_jobs.plan.waiting_files import Discovery


@dataclass(frozen=True, kw_only=True)
class SourceLimits:
    """How much a job reads from a source at once, and how long it waits for one.

    Attributes:
        decoded_bytes: size of a snapshot and its neighbours in memory, decoded. Larger ones are compared in parts, by
            hashes of keys.
        rows_a_file: rows in a change file that a job makes of a snapshot.
        messages_a_file, bytes_a_file: a file of a topic ends with the message that reaches one of them.
        answer_seconds: how long a Kafka broker may take to answer.
        open_seconds: how long opening a database's log waits for transactions that write.
    """

    decoded_bytes: int = 1 << 30
    rows_a_file: int = 1_000_000
    messages_a_file: int = 20_000
    bytes_a_file: int = 24 * 1024**2
    answer_seconds: float = 15.0
    open_seconds: int = 240


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Most files and bytes of a batch.

    Attributes:
        first_load: most bytes of a batch of full-load files while there is no table: its parts are written one by one.
            0: as many as of another batch.
    """

    max_files: int
    max_bytes: int
    first_load: int = 0

    @classmethod
    def of(cls, tier: TierSpec, *, in_one_task: bool) -> BatchLimits:
        most = tier.max_bytes_per_batch
        if not in_one_task:
            return cls(max_files=tier.max_files_per_batch, max_bytes=most)
        # Decoded rows take some 18 times the bytes of their file, a stored table far less.
        fits = tier.task_max_bytes // 2
        return cls(max_files=tier.max_files_per_batch, max_bytes=min(most, fits), first_load=fits)


def next_batch(
    waiting: Sequence[PlannedFile], *, limits: BatchLimits, state: TableState, now: datetime
) -> BatchPlan | None:
    """The batch after the last committed one; None when nothing waits.

    It holds loads or changes of one generation, from the head of `waiting` (ordered by `waiting_files.find`), within
    the limits but always one file.
    """
    if not waiting:
        return None
    first = waiting[0]
    alike = list(takewhile(lambda file: (file.kind, file.generation) == (first.kind, first.generation), waiting))
    most = max(limits.max_bytes, limits.first_load if first.kind == "load" and state.keys is None else 0)
    files = _within(alike, limits.max_files, most)
    return BatchPlan(
        number=state.batch + 1,
        mode="initial" if first.kind == "load" and first.generation == 1 else state.next_mode,
        planned_at=now.astimezone(UTC).isoformat(timespec="microseconds"),
        generation=max(first.generation, state.generation),
        files=tuple(files),
        sweep=first.kind == "load" and first.generation > 1 and len(files) == len(alike),
    )


def _within(files: Sequence[PlannedFile], max_files: int, max_bytes: int) -> list[PlannedFile]:
    taken, size = [files[0]], files[0].size
    for file in files[1:]:
        size += file.size
        if len(taken) >= max_files or size > max_bytes:
            break
        taken.append(file)
    return taken


def state_after(
    plan: BatchPlan,
    state: TableState,
    *,
    landing: str,
    remaining: Discovery,
    times: FileTimes = BY_NAME,
) -> TableState:
    """`state` moved on by what `plan` alone gives: batch, generation and its floor, cursor, time of the full listing.

    Args:
        remaining: the discovery without the plan's files; its full listing counts once nothing of it waits, so that a
            crash in between lists in full again.
    """
    listed = None if remaining.waiting else remaining.listed_in_full_at
    held = state.held_truncate
    is_taken = held is not None and any(file.path == held.path for file in plan.files)
    names = [below(landing, file.path) for file in plan.files if file.kind == "change"]
    return replace(
        state,
        batch=plan.number,
        generation=plan.generation,
        loaded_at=plan.planned_at if any(file.kind == "load" for file in plan.files) else state.loaded_at,
        held=state.held if plan.generation == state.generation else None,
        truncates=state.truncates if plan.truncates is None else plan.truncates,
        held_truncate=plan.holds or (None if is_taken else held),
        snapshots=plan.snapshots or state.snapshots,
        # None once the last generation that they report is open: from then on a rewritten file opens one.
        openings=remaining.openings if plan.generation <= len(remaining.openings) else (),
        floors=generation_floors_of(plan, state),
        cursor=newest(times, names, datetime.fromisoformat(plan.planned_at), state.cursor),
        oldest=min(filter(None, (*map(times.of, names), state.oldest)), default=None),
        listed_in_full_at=listed or state.listed_in_full_at,
    )


def generation_floors_of(plan: BatchPlan, state: TableState) -> tuple[GenerationFloor, ...]:
    """What was ingested before each generation, including the plan's; of one that a snapshot has opened, its place in
    the log, before which all earlier changes are.
    """
    new = plan.generation - len(state.floors)
    floors = (*state.floors, *(GenerationFloor(state.max_sequence, state.max_commit_ts),) * new)
    return floors_of(floors, plan.snapshots or state.snapshots)
