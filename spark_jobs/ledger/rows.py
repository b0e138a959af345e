"""Ledger rows and table state of a committed batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from airflow_gddl.contract.spec import TableSpec
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.batching import state_after
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.file_times import FileTimes
from spark_jobs.plan.files import FileEntry, PlannedFile
from spark_jobs.plan.sequence import greater, has_normal_text
from spark_jobs.plan.settings import settings_of
from spark_jobs.rules.decoded_batch import DecodedBatch


@dataclass(frozen=True, kw_only=True)
class SettledBatch:
    """A batch whose tables are written.

    Attributes:
        decoded_batch: null when no file could be read.
        swept: rows of older generations were removed.
    """

    spec: TableSpec
    plan: BatchPlan
    decoded_batch: DecodedBatch | None
    unreadable: Sequence[Unreadable]
    swept: bool = False

    @property
    def opens(self) -> bool:
        """A generation is opened by a readable load file or a missing folder; not by a damaged file."""
        return self.decoded_batch is not None or not self.unreadable


def entries_of(done: SettledBatch, state: TableState) -> tuple[FileEntry, ...]:
    """A row for each readable or unreadable file of the plan; none for files that were removed."""
    bad = {u.file.path for u in done.unreadable}
    rows = []
    for file in done.plan.files:
        if file.path in bad:
            reopens = not done.opens and file.kind == "load" and file.generation > max(state.generation, 1)
            generation = max(state.generation, 1) if reopens else file.generation
            rows.append(replace(_entry(file, done.plan), state="unreadable", generation=generation, reopens=reopens))
        elif done.decoded_batch is not None and file.path in done.decoded_batch.schema_of:
            rows.append(_read_entry(file, done.plan, done.decoded_batch))
    return tuple(rows)


def _entry(file: PlannedFile, plan: BatchPlan) -> FileEntry:
    return FileEntry(
        path=file.path,
        kind=file.kind,
        size=file.size,
        etag=file.etag,
        modified=file.modified,
        fingerprint=file.fingerprint,
        generation=file.generation,
        batch=plan.number,
    )


def _read_entry(file: PlannedFile, plan: BatchPlan, decoded_batch: DecodedBatch) -> FileEntry:
    entry = replace(_entry(file, plan), schema=decoded_batch.schema_of[file.path], rows=0)
    figures = decoded_batch.figures.files.get(file.path)
    return entry if figures is None else replace(entry, **asdict(figures))


def state_of(
    done: SettledBatch, state: TableState, landing: str, left: Discovery | None, times: FileTimes
) -> TableState:
    """The table's state after the commit."""
    decoded_batch = done.decoded_batch
    plan = done.plan if done.opens else replace(done.plan, generation=max(state.generation, 1))
    after = state_after(plan, state, landing=landing, left=left, times=times)
    if done.swept:
        after = replace(after, swept=plan.generation)
    if decoded_batch is None:
        return after
    highest, newest = state.max_sequence, state.max_commit_ts
    for figures in decoded_batch.figures.files.values():
        highest = greater(highest, figures.max_sequence)
        newest = max(filter(None, (newest, figures.max_commit_ts)), default=None)
    table_schema = decoded_batch.schema.table_schema
    return replace(
        after,
        keys=done.spec.keys,
        sequence_by=table_schema.sequence or state.sequence_by,
        sequence_type=table_schema.sequence_type if table_schema.sequence else state.sequence_type,
        normal_text=has_normal_text(state),
        log_began=tuple(map(str, done.spec.options.get("log_began") or ())),
        schemas=decoded_batch.schema.schemas,
        max_sequence=highest,
        max_commit_ts=newest,
        applied=settings_of(done.spec),
    )
