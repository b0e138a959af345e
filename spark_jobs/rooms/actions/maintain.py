"""Maintenance of one table, under its claim: compaction, and removal of obsolete files and rows.

Every step is a separate commit that changes no visible rows, so an interrupted maintenance is simply repeated:
tombstones ─► superseded changes ─► small files ─► old files ─► logs with erased keys ─► leftovers of runs ─► landing.

The last step removes landed files that were ingested and are old (docs/repair.md). A file is moved by a copy, which is
compared, and then a deletion: whatever ends the run between them, the next one repeats the copy. What is not in the
ledger as ingested, in exactly this version, is never touched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.codes import FIELD_VALUE, LANDING_FILES_KEPT, LANDING_RETENTION_REFUSED, LOG_FILES_UNKNOWN
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.row_checks import LEAST_VACUUM_SECONDS
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.table_spec import LandingRetention
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.batch import notices
from spark_jobs.batch.damaged_tables import require_undamaged
from spark_jobs.batch.merge import tombstones_since
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.tidying import TABLES
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.cut_changes import note_cut
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.identity import has_same_identity
from spark_jobs.plan.planned_batch import FileEntry, has_few_rows
from spark_jobs.rooms.catalogs.registrar import is_iceberg, is_pointed_to
from spark_jobs.rooms.features import features_of, kept_features
from spark_jobs.tables.engine import Compacted, Engine, Maintenance
from spark_jobs.tables.replayed_log import CHECKPOINT, COMMIT, POINTER
from spark_jobs.tables.vacuum import vacuum_hours

_DELETED_AT_ONCE, _SAMPLE = 1000, 5


_FOR_READERS = ("replica", "history")
"""Tables that features may show to other readers."""


@dataclass(frozen=True, kw_only=True)
class CleanedFiles:
    """What the clean-up of a landing folder did.

    Attributes:
        removed: files moved or deleted, or under `dry_run` to be removed.
        kept: old files that stay, because they have rows in quarantine, because another file is at their new place, or
            because they were written again in the meantime.
        sample: some of the kept files.
    """

    removed: int = 0
    kept: int = 0
    sample: tuple[str, ...] = ()

    def __add__(self, other: CleanedFiles) -> CleanedFiles:
        """Sum over two landing folders."""
        sample = (*self.sample, *other.sample)[:_SAMPLE]
        return CleanedFiles(removed=self.removed + other.removed, kept=self.kept + other.kept, sample=sample)


def clean_landing(run: TableRun, ledger: Ledger, now: datetime, *, dry_run: bool) -> CleanedFiles:
    """Remove old files of one landing folder; nothing while a batch or a refresh is unfinished, or another job that
    keeps the table may need them.

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
    known, state = ledger.all_entries(), ledger.state
    newest = max((row.modified for row in known.values()), default="")
    valid: list[tuple[StoredObject, FileEntry]] = []
    quarantined: list[str] = []
    for file in run.runtime.storage.list(run.layout.landing, "", run.place.bounds):
        row = known.get(file.path)
        if row is None or file.refused or row.state != "committed" or row.etag != file.etag:
            continue  # a newer version waits for its batch
        # Load files stay until a later load has replaced them whole: their absence would end a reload.
        is_superseded = row.kind == "change" or row.generation < state.generation <= state.swept
        if not is_superseded or row.modified >= newest or _modified(file) >= before:
            continue
        if row.quarantined:
            quarantined.append(file.path)
        else:
            valid.append((file, row))
    if dry_run:
        return CleanedFiles(removed=len(valid), kept=len(quarantined), sample=tuple(quarantined[:_SAMPLE]))
    taken: set[str] = set(_moved(run, retention, valid)) if retention.action == "move" else set()
    kept = [*quarantined, *sorted(taken)]
    doomed = [file for file, _ in valid if file.path not in taken]
    for start in range(0, len(doomed), _DELETED_AT_ONCE):
        run.go_on()
        chunk = doomed[start : start + _DELETED_AT_ONCE]
        rewritten = _rewritten(run, chunk)
        kept += sorted(rewritten)
        run.runtime.storage.delete(*(file.path for file in chunk if file.path not in rewritten))
    removed = len(quarantined) + len(valid) - len(kept)
    return CleanedFiles(removed=removed, kept=len(kept), sample=tuple(kept[:_SAMPLE]))


def _rewritten(run: TableRun, files: Sequence[StoredObject]) -> set[str]:
    """Paths of files that were written again since they were listed: by a listing of the names between them, in order.

    What a file holds now was not ingested. It is asked right before the deletion, for copies may have taken long.
    """
    known, last, rewritten = {file.path: file.etag for file in files}, files[-1].path, set()
    for now in run.runtime.storage.list(run.layout.landing, files[0].name[:-1], run.place.bounds):
        if known.get(now.path, now.etag) != now.etag:
            rewritten.add(now.path)
        if now.path == last:
            break
    return rewritten


def _moved(run: TableRun, retention: LandingRetention, files: list[tuple[StoredObject, FileEntry]]) -> Iterator[str]:
    """Copy each file; yields paths whose place is taken by another file, and those that were written again."""
    storage = run.runtime.storage
    for file, row in files:
        run.go_on()
        target = target_of(run, retention, file.path, row.generation)
        there = storage.stat(target)
        if there is None:
            storage.copy(file.path, target)
            if (now := storage.stat(file.path)) is None or now.etag != file.etag:
                storage.delete(target)  # it may be a part of what is being written
                yield file.path
            run.report("copied")
        elif not _is_copy(storage, there, file):
            yield file.path


def _is_copy(storage: Storage, there: StoredObject, file: StoredObject) -> bool:
    """Whether two files have the same bytes; a copy may have another tag."""
    if there.size != file.size:
        return False
    of_bytes = storage.fingerprints_of_bytes
    return storage.fingerprint(there) == storage.fingerprint(file) or of_bytes(there.path) == of_bytes(file.path)


def target_of(run: TableRun, retention: LandingRetention, path: str, generation: int) -> str:
    """`to`/source/schema/table/generation/name: a full load uses the names of the one before again."""
    name = path.removeprefix(run.layout.landing + "/")
    schema, table = run.spec.name_in_source.split(".", 1)
    return join(retention.to or "", run.spec.source, schema, table, f"generation-{generation}", name)


def _require_elsewhere(run: TableRun, retention: LandingRetention) -> None:
    if retention.to is None:
        return
    fault = ""
    roots = {"landing root": run.spec.landing or run.job.roots.landing, "lake": run.job.roots.lake}
    for name, root in roots.items():
        if f"{retention.to.rstrip('/')}/".startswith(f"{root.rstrip('/')}/"):
            fault = f"is below the {name} {root}"
    if _bucket(retention.to) != _bucket(run.layout.landing):
        fault = "is not in the bucket of the landing folder"
    if fault:
        raise FatalError(
            LANDING_RETENTION_REFUSED,
            f"landing_retention.to {retention.to} {fault}",
            where=run.spec.table,
            remedy="write a folder of the same bucket, outside of landing and lake",
        )


def _bucket(path: str) -> str:
    """Empty: local disks."""
    return split(path)[0] if is_s3(path) else ""


_SETTLED = timedelta(hours=12)
"""Minimum age of a checkpoint before older commits are removed: earlier readers have finished opening the table."""
_VERSION = re.compile(r"(\d{20})\.")
_JOINED = re.compile(r"\d{20}\.(\d{20})\.compacted\.json")
_HARMLESS = re.compile(rf"\d{{20}}\.crc|{POINTER}|_last_vacuum_info|(?:.*/)?[._][^/]*\.(?:crc|tmp)")
"""Files without statistics, or with them only while being written."""
_KNOWN = (COMMIT, CHECKPOINT, _JOINED, _HARMLESS)


def cut_log(
    storage: Storage, maintenance: Maintenance, path: str, now: datetime, before: datetime, *, dry_run: bool
) -> tuple[int, tuple[str, ...]]:
    """Remove files of a table's log about commits from before that time.

    Later versions are unchanged. If no checkpoint that is old enough replaces them, one is written,
    and a later call removes them. A log with files of another kind (sidecars of v2 checkpoints, commits of a
    catalog) is unchanged: they may hold the same statistics, or be needed by remaining versions.

    Returns:
        How many files were removed, or under `dry_run` are to be, and the names of files of unknown kinds.
    """
    everything = list(storage.list(join(path, "_delta_log")))
    if unknown := sorted(f.name for f in everything if not any(k.fullmatch(f.name) for k in _KNOWN)):
        return 0, tuple(unknown)
    files = [f for f in everything if _VERSION.match(f.name)]
    last = max((_version(f) for f in files if COMMIT.fullmatch(f.name) and _modified(f) < before), default=None)
    if last is None:
        return 0, ()
    standing = [f for f in _checkpoints(files) if _version(f) > last]
    if not any(_modified(file) < now - _SETTLED for file in standing):
        if not standing and not dry_run:
            maintenance.checkpoint(path)
        return 0, ()
    doomed = [file for file in files if _last_version(file) <= last]
    for file in doomed if not dry_run else ():
        storage.delete(file.path)
    return len(doomed), ()


def _version(file: StoredObject) -> int:
    return int(file.name[:20])


def _last_version(file: StoredObject) -> int:
    joined = _JOINED.fullmatch(file.name)
    return int(joined[1]) if joined else _version(file)


def _modified(file: StoredObject) -> datetime:
    return datetime.fromtimestamp(file.modified, UTC)


def _checkpoints(files: Sequence[StoredObject]) -> list[StoredObject]:
    """One file of each complete checkpoint."""
    parts: dict[tuple[int, str], list[StoredObject]] = defaultdict(list)
    for file in files:
        match = CHECKPOINT.fullmatch(file.name)
        if match:
            parts[_version(file), match[3] or ""].append(file)
    return [group[-1] for (_, total), group in parts.items() if len(group) == int(total or 1)]


RUNS_KEPT, RUN_DAYS = 50, 90
"""Number of run records that are always kept, and days to keep the others."""
_LEFTOVER = timedelta(days=1)


@dataclass(kw_only=True)
class MaintenanceResult:
    """Result of a maintenance, or under `dry_run` its effect.

    Attributes:
        compacted: table to its data files before and after; unchanged tables are omitted.
        files_removed: old files of all tables.
        log_files_removed: of their logs, where keys were erased.
        logs_kept: table to the files of its log that are of an unknown kind, for which nothing of it was removed.
        landing: see `TableSpec.landing_retention`.
    """

    compacted: dict[str, Compacted] = field(default_factory=dict)
    files_removed: int = 0
    log_files_removed: int = 0
    logs_kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tombstones_removed: int = 0
    changes_cut: int = 0
    runs_removed: int = 0
    leftovers_removed: int = 0
    landing: CleanedFiles = field(default_factory=CleanedFiles)


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Maintain one table; `details` is a `MaintenanceResult`.

    Raises:
        FatalError: `FIELD_VALUE`, `RETENTION_UNREADABLE`; as `require_undamaged`.
        RetriableError: `TABLE_BUSY`.
    """
    if seconds(run.spec.vacuum_retention) < LEAST_VACUUM_SECONDS:
        raise FatalError(
            FIELD_VALUE,
            f"vacuum_retention {run.spec.vacuum_retention} is shorter than a reader may take",
            where=run.spec.table,
            remedy="write 1d or more",
        )
    with nullcontext() if run.job.options.dry_run else run.claim() as claim:
        require_undamaged(run)
        kept = _Maintenance(run, claim).run_steps(run.runtime.clock())
    run.report("done")
    totals.warn(_warnings(kept))
    return run.answer(totals, {**asdict(kept), "dry_run": run.job.options.dry_run})


def _warnings(kept: MaintenanceResult) -> Iterator[RunWarning]:
    names = [f"{table}: {name}" for table, unknown in kept.logs_kept.items() for name in unknown]
    message = "the log has files of unknown kinds: nothing of it was removed, and its "
    message += "statistics may still show erased keys"
    yield from notices.of_names(LOG_FILES_UNKNOWN, message, names)
    if (landing := kept.landing).kept:
        message = "old files of the landing folder stay: they have rows in quarantine, another file is at their new "
        message += "place, or they were written again meanwhile"
        yield RunWarning(code=LANDING_FILES_KEPT, message=message, count=landing.kept, sample=landing.sample)


@dataclass(frozen=True)
class _Maintenance:
    """Maintenance of one table.

    Attributes:
        claim: null where nothing is written.
    """

    run: TableRun
    claim: Claim | None

    @property
    def _dry(self) -> bool:
        return self.run.job.options.dry_run

    def _check(self) -> None:
        """Called before each step that writes: another run may have taken over an expired claim."""
        if self.claim is not None:
            self.claim.check()

    def run_steps(self, now: datetime) -> MaintenanceResult:
        kept, runs = MaintenanceResult(), (self.run, *self.run.shard_runs(), *self.run.former_shards)
        ledgers = [run.ledger() for run in runs]
        if (ledger := next((one for one in ledgers if one.state.keys is not None), None)) is not None:
            context = self.run.context()
            few = has_few_rows(replace(ledger.state, rows=sum(one.state.rows for one in ledgers)))
            context = context.suited(few_rows=few)
            self._tables(context, ledger, now, kept)
        self._check()
        for run, one in zip(runs, ledgers, strict=True):
            kept.leftovers_removed += self._leftovers(run.layout.state, one, now)
        self.run.report("leftovers", rows=kept.leftovers_removed)
        for run, one in zip(runs, ledgers, strict=True):
            kept.landing += clean_landing(run, one, now, dry_run=self._dry)
        self.run.report("landing", rows=kept.landing.removed)
        kept.runs_removed = self._old_runs(now)
        self.run.report("runs", rows=kept.runs_removed)
        return kept

    def _tables(self, context: Engine, ledger: Ledger, now: datetime, kept: MaintenanceResult) -> None:
        layout, spec, maintenance = context.layout, context.spec, context.maintenance
        if spec.keys and context.tables.exists(layout.tombstones):
            before = tombstones_since(spec, now)
            kept.tombstones_removed = maintenance.forget_tombstones(layout.tombstones, before, dry_run=self._dry)
            self.run.report("tombstones", rows=kept.tombstones_removed)
        # A batch under way may be in the change table in part; by other keys or another order other changes matter.
        if ledger.plan() is None and has_same_identity(spec, ledger.state):
            kept.changes_cut = self._cut(context, ledger, now)
        hours, has_erased = vacuum_hours(spec), bool(context.erasures.hashes())
        is_pointed = self._is_pointed_to(context)
        for name in TABLES:
            if not context.tables.exists(path := getattr(layout, name)):
                continue
            self._check()
            if not self._dry:
                maintenance.keep_readable_statistics(path)
            joined = maintenance.compact(path, dry_run=self._dry)
            if joined.files_after != joined.files_before:
                kept.compacted[name] = joined
            self.run.report("compact", rows=joined.files_before - joined.files_after)
            if name in _FOR_READERS and not (is_pointed and self._is_published(name, kept)):
                continue
            kept.files_removed += maintenance.vacuum(path, hours, dry_run=self._dry)
            self.run.report("vacuum")
            if has_erased:
                before = now - timedelta(hours=hours)
                storage = self.run.runtime.storage
                removed, unknown = cut_log(storage, maintenance, path, now, before, dry_run=self._dry)
                kept.log_files_removed += removed
                kept.logs_kept |= {name: unknown} if unknown else {}
                self.run.report("log")

    def _is_published(self, name: str, kept: MaintenanceResult) -> bool:
        """Whether readers of features, if any, use only files that a vacuum keeps."""
        run = self.run
        if self._dry:
            return True
        if any(feature.update(run) for feature in features_of(run)):
            return False
        if name == "replica":
            kept.leftovers_removed += sum(feature.clean(run) for feature in kept_features(run))
        return True

    def _is_pointed_to(self, context: Engine) -> bool:
        """Whether readers of an Iceberg catalog, if any, read the newest version, whose files stay a while."""
        run, path = self.run, context.layout.replica
        if not is_iceberg(run.job.catalogs.get(run.spec.catalog or "")) or not context.tables.exists(path):
            return True
        return is_pointed_to(run.runtime.storage, run.job.roots.lake, run.spec, context.tables.version(path))

    def _cut(self, context: Engine, ledger: Ledger, now: datetime) -> int:
        retention = context.spec.changes_retention
        if retention is None or not context.tables.exists(context.layout.changes):
            return 0
        before = now - timedelta(seconds=seconds(retention))
        table_schema, swept = context.stored_schema(ledger.state), ledger.state.swept
        if not self._dry:  # first, so that a comparison that misses changes finds the reason
            note_cut(self.run.runtime.storage, context.layout.state, before=before.isoformat(), at=now.isoformat())
        cut = context.maintenance.cut_changes(table_schema, before, swept, dry_run=self._dry)
        self.run.report("cut", rows=cut)
        return cut

    def _leftovers(self, state: str, ledger: Ledger, now: datetime) -> int:
        """Remove leftovers of interrupted runs in the state folder, and superseded ledger files."""
        needed, unfinished = ledger.needed(), ledger.plan()
        working = ("parts/", "refresh/", "rows/", "staged/", "unwrapped/") if unfinished is None else ()
        paths = []
        for file in self.run.runtime.storage.list(state):
            name = file.name
            old = now - datetime.fromtimestamp(file.modified, UTC) > _LEFTOVER
            superseded = name.startswith(("commits/", "recent/", "archive/")) and name not in needed
            if name.startswith(working) or (superseded and old):
                paths.append(file.path)
        return self._delete(paths)

    def _old_runs(self, now: datetime) -> int:
        runs = Layout.of(self.run.job.roots, self.run.spec).runs
        # Archives are in separate folders, and bounded by their writer.
        names = sorted(f.path for f in self.run.runtime.storage.list(runs) if "/" not in f.name)
        least = join(runs, f"{now - timedelta(days=RUN_DAYS):%Y%m%dT%H%M%S}")
        return self._delete([path for path in names[:-RUNS_KEPT] if path < least])

    def _delete(self, paths: list[str]) -> int:
        for path in paths if not self._dry else ():
            self.run.runtime.storage.delete(path)
        return len(paths)
