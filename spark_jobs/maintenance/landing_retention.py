"""Removal of landed files that were ingested and are old: the step `landing` of maintenance (docs/repair.md).

A file is moved by a copy, which is compared, and then a deletion: whatever ends the run between them, the next one
repeats the copy. What is not in the ledger as ingested, in exactly this version, is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.table_spec import LandingRetention
from airflow_gddl.stores import StoredObject
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import FileEntry, TableState
from spark_jobs.table.table_run import TableRun

_DELETED_AT_ONCE, _SAMPLE = 1000, 5


@dataclass(frozen=True, kw_only=True)
class CleanedFiles:
    """Attributes:
    removed: files moved or deleted, or under `dry_run` to be removed.
    kept: old files that stay, because they have rows in quarantine or another file is at their new place.
    sample: some of the latter.
    """

    removed: int = 0
    kept: int = 0
    sample: tuple[str, ...] = ()

    def __add__(self, other: CleanedFiles) -> CleanedFiles:
        """Of two landing folders."""
        sample = (*self.sample, *other.sample)[:_SAMPLE]
        return CleanedFiles(removed=self.removed + other.removed, kept=self.kept + other.kept, sample=sample)


def clean_landing(run: TableRun, ledger: Ledger, now: datetime, *, dry_run: bool) -> CleanedFiles:
    """Remove old files of one landing folder; nothing while a batch or a refresh is unfinished.

    Args:
        run: of the table, or of one of its sources.

    Raises:
        FatalError: `LANDING_RETENTION_REFUSED`.
    """
    retention = run.spec.landing_retention
    if retention is None or ledger.plan() is not None:
        return CleanedFiles()
    _require_elsewhere(run, retention)
    before = now - timedelta(seconds=seconds(retention.after))
    known = ledger.all_entries()
    old = [
        (found, known[found.path])
        for found in run.runtime.storage.list(run.place.root, "", run.place.bounds)
        if found.path in known and _is_ingested(found, known[found.path]) and _modified(found) < before
    ]
    newest = max((row.modified for row in known.values()), default="")
    chosen = [(found, row) for found, row in old if _is_superseded(row, ledger.state) and row.modified < newest]
    quarantined = [found.path for found, row in chosen if row.quarantined]
    valid = [(found, row) for found, row in chosen if not row.quarantined]
    if dry_run:
        return CleanedFiles(removed=len(valid), kept=len(quarantined), sample=tuple(quarantined[:_SAMPLE]))
    taken: set[str] = set(_moved(run, retention, valid)) if retention.action == "move" else set()
    kept = [*quarantined, *sorted(taken)]
    doomed = [found.path for found, _ in valid if found.path not in taken]
    for start in range(0, len(doomed), _DELETED_AT_ONCE):
        run.go_on()
        run.runtime.storage.delete(*doomed[start : start + _DELETED_AT_ONCE])
    return CleanedFiles(removed=len(doomed), kept=len(kept), sample=tuple(kept[:_SAMPLE]))


def _is_ingested(found: StoredObject, row: FileEntry) -> bool:
    """Whether this version of the file was ingested; a newer one waits for its batch."""
    return not found.refused and row.state == "committed" and row.etag == found.etag


def _is_superseded(row: FileEntry, state: TableState) -> bool:
    """Load files stay until a later load has replaced them whole: their absence would end a reload."""
    return row.kind == "change" or row.generation < state.generation <= state.swept


def _modified(found: StoredObject) -> datetime:
    return datetime.fromtimestamp(found.modified, UTC)


def _moved(run: TableRun, retention: LandingRetention, files: list[tuple[StoredObject, FileEntry]]) -> Iterator[str]:
    """Copy each file; yields paths whose place is taken by another file."""
    storage = run.runtime.storage
    for found, row in files:
        run.go_on()
        target = target_of(run, retention, found.path, row.generation)
        there = storage.stat(target)
        if there is None:
            storage.copy(found.path, target)
            run.report("copied")
        elif there.size != found.size or storage.fingerprint(there) != storage.fingerprint(found):
            yield found.path


def target_of(run: TableRun, retention: LandingRetention, path: str, generation: int) -> str:
    """`to`/source/schema/table/generation/name: a full load uses the names of the one before again."""
    name = path.removeprefix(run.place.root + "/")
    schema, table = run.spec.name_in_source.split(".", 1)
    return join(retention.to or "", run.spec.source, schema, table, f"generation-{generation}", name)


def _require_elsewhere(run: TableRun, retention: LandingRetention) -> None:
    if retention.to is None:
        return
    fault = ""
    for name, root in _roots(run).items():
        if f"{retention.to.rstrip('/')}/".startswith(f"{root.rstrip('/')}/"):
            fault = f"is below the {name} {root}"
    if _bucket(retention.to) != _bucket(run.layout.landing):
        fault = "is not in the bucket of the landing folder"
    if fault:
        raise FatalError(
            "LANDING_RETENTION_REFUSED",
            f"landing_retention.to {retention.to} {fault}",
            where=run.spec.table,
            remedy="write a folder of the same bucket, outside of landing and lake",
        )


def _roots(run: TableRun) -> Mapping[str, str]:
    of_source = {"landing root": run.spec.landing} if run.spec.landing else {}
    return {"landing root": run.job.roots.landing, "lake": run.job.roots.lake, **of_source}


def _bucket(path: str) -> str:
    """Empty: local disks."""
    return split(path)[0] if is_s3(path) else ""
