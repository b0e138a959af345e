"""Files and ledger rows for tests of discovery, batching and ledger."""

from __future__ import annotations

from dataclasses import replace

from airflow_gddl.contract.file_names import classify
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import state_after
from spark_jobs.plan.file_times import BY_NAME, FileTimes
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, FileEntry, LandedFile, PlannedFile, TableState
from spark_jobs.plan.waiting_files import Discovery

LANDING = "/landing/hr/employee"


def landed(
    name: str, version: int = 1, *, size: int = 10, modified: str | None = None, etag: str | None = None
) -> LandedFile:
    """A file whose content is told by `version`, as is its time unless `modified` says otherwise."""
    names = classify(name)
    assert names is not None
    return LandedFile(
        path=f"{LANDING}/{name}",
        kind=names[0],
        format=names[1],
        order=names[2],
        size=size,
        etag=etag or f"etag-{version}",
        modified=modified or f"2024-01-{version:02d}T00:00:00.000000+00:00",
    )


def content(file: LandedFile, _known: FileEntry | None = None) -> str:
    """The fingerprint that goes with `landed`: `etag-2` and `etag-2+touched` are the same content."""
    return f"content:{file.etag.partition('+')[0]}"


def entry(file: LandedFile, *, generation: int = 1, batch: int = 1) -> FileEntry:
    return FileEntry(
        path=file.path,
        kind=file.kind,
        size=file.size,
        etag=file.etag,
        modified=file.modified,
        fingerprint=content(file),
        generation=generation,
        batch=batch,
        rows=3,
    )


def entry_of(file: PlannedFile, batch: int) -> FileEntry:
    return replace(file.entry(batch), rows=3)


def committed(
    plan: BatchPlan,
    state: TableState,
    landing: str = LANDING,
    remaining: Discovery | None = None,
    times: FileTimes = BY_NAME,
) -> BatchCommit:
    """What the pipeline leaves of a plan."""
    files = tuple(entry_of(file, plan.number) for file in plan.files)
    after = replace(
        state_after(plan, state, landing=landing, remaining=remaining or Discovery(), times=times), keys=("id",)
    )
    return BatchCommit(number=plan.number, plan=plan, files=files, state=after)


def planned_file(name: str, generation: int = 1, version: int = 1) -> PlannedFile:
    file = landed(name, version)
    return PlannedFile(
        path=file.path,
        kind=file.kind,
        format=file.format,
        size=file.size,
        etag=file.etag,
        modified=file.modified,
        fingerprint=content(file),
        generation=generation,
    )


def plan_of(number: int, *names: str, version: int = 1) -> BatchPlan:
    return BatchPlan(
        number=number,
        mode="incremental",
        planned_at="2025-01-01T00:00:00.000000+00:00",
        generation=1,
        files=tuple(planned_file(name, version=version) for name in names),
    )


def change(minute: int) -> str:
    return (
        f"2024{1 + minute // 40320:02d}{1 + minute // 1440 % 28:02d}-{minute // 60 % 24:02d}{minute % 60:02d}00000.csv"
    )


def grow(ledger: Ledger, batches: int, files_per_batch: int = 1) -> list[FileEntry]:
    """Commit batches of new change files, a minute apart; their rows."""
    rows: list[FileEntry] = []
    for _ in range(batches):
        number = ledger.state.batch + 1
        names = [change(number * files_per_batch + each) for each in range(files_per_batch)]
        commit = committed(plan_of(number, *names), ledger.state)
        ledger.commit(commit)
        rows.extend(commit.files)
    return rows
