"""Snapshots as a source (`mode: snapshots`): each export of a whole table becomes change files (docs/snapshots.md).

These hold its differences by key from the exports around it (decision 393).

A snapshot is a folder of time below the table's landing folder. The files that are written are those that AWS DMS
would write, in a folder of the lake; the run takes them as it takes any change files, so that everything after is the
same. A snapshot is noted as begun, its files are written, then it is noted as taken. After a kill it is taken again,
by the same names.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract import codec
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, QuarantinableError, RetriableError
from airflow_gddl.contract.file_names import PathFormat, digits_of, is_temporary, moment
from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.contract.names import landed_name, renamed
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.stores import Storage, scratch
from airflow_gddl.stores.readers import StoredObject
from spark_jobs.dialects.probe import probe
from spark_jobs.dialects.protocol import Unreadable
from spark_jobs.dialects.replication_log import SEQUENCE, name_in_files
from spark_jobs.discovery import folders_like, settle_of
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger, read_small
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rules.read import read_file
from spark_jobs.rules.snapshot_changes import SnapshotChanges, differences
from spark_jobs.table import notices
from spark_jobs.table.runtime import RunTotals, TableRun, iso

_FOLDER, _DOCUMENT = "snapshots", "taken.json"
_RELOAD = "load the table again from the snapshots that are there: gddl reload --from-files --table"
_REMEDY = f"delete it, and {_RELOAD}"
_ROWS_A_FILE = 1_000_000
_DECODED_BYTES = 1 << 30
"""Of the files of a snapshot and its neighbours, decoded; larger ones are compared in parts, by hashes of keys."""
_WEIGHT = 18
"""Bytes of decoded rows for a byte of a file."""
_COMMITTED = "AR_H_COMMIT_TIMESTAMP"


@dataclass(frozen=True, kw_only=True)
class TakenSnapshot:
    """A snapshot whose differences are in change files.

    Attributes:
        version: digits of the time in its path; changes have it as their sequence.
        files: digest of the names, sizes and tags of its files, as they were seen last.
        content: digest of what was in them when it was taken; files that are copied get other tags.
        at: when it was taken, ISO 8601 UTC.
        changed: whether the files that were seen last have another content.
    """

    version: str
    files: str
    content: str
    at: str
    changed: bool = False


@dataclass(frozen=True, kw_only=True)
class HeldSnapshot:
    """A snapshot that was not taken, and is not tried again until its files, or `sweep_limit`, change."""

    version: str
    files: str
    sweep_limit: float
    why: str


@dataclass(frozen=True, kw_only=True)
class SnapshotsTaken:
    """Which snapshots of a table were taken.

    Attributes:
        begun: the snapshot whose files are being written; null: none.
        first: name, without its ending, of the first file of the one that was begun last.
        last: name of the newest file.
        columns: names in lower case of all columns of those that were taken.
        remembered: seconds for which deletes were remembered, the least of all times; 0: none was taken yet.
        reloading: whether the change files are those of a reload that has not ended; the tables don't have their rows
            alone until then.
    """

    taken: tuple[TakenSnapshot, ...] = ()
    held: tuple[HeldSnapshot, ...] = ()
    begun: TakenSnapshot | None = None
    first: str = ""
    last: str = ""
    columns: tuple[str, ...] = ()
    remembered: int = 0
    reloading: bool = False
    format: int = 1

    @property
    def faulty(self) -> tuple[str, ...]:
        """Versions that were held, and those that changed after they were taken."""
        return (*(one.version for one in self.held), *(one.version for one in self.taken if one.changed))

    def only_of(self, landed: Container[str]) -> SnapshotsTaken:
        """Without the faults of snapshots that are no longer there."""
        taken = (replace(one, changed=one.changed and one.version in landed) for one in self.taken)
        return replace(self, held=tuple(one for one in self.held if one.version in landed), taken=tuple(taken))


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """A snapshot that landed, and why it may not be taken yet; empty: it may."""

    version: str
    files: tuple[StoredObject, ...]
    waits: str = ""

    @property
    def digest(self) -> str:
        return _digest(f"{one.name}\t{one.size}\t{one.etag}" for one in self.files)

    def content(self, storage: Storage) -> str:
        """Reads the files, where the store has no digests of them.

        Raises:
            RetriableError: `FILES_CHANGED`: one was written again, or removed, since it was listed.
        """
        try:
            return _digest(f"{one.name}\t{storage.fingerprint_as_listed(one)}" for one in self.files)
        except FileNotFoundError as error:
            raise _files_changed(self.version, error.filename) from error

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)


def _files_changed(version: str, where: str) -> RetriableError:
    what = f"a file of snapshot {_title(version)} was written again or removed since it was listed"
    return RetriableError("FILES_CHANGED", what, where=where, remedy="nothing: the next run reads the snapshot again")


def _digest(lines: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class SnapshotSurvey:
    """What has landed, and what of it is new.

    Attributes:
        new: to be taken, the oldest version first.
        touched: taken ones whose files have other tags than when they were seen last.
        is_outdated: whether some that were held, or had changed, are no longer there.
        waits: whether some may still be written.
        warnings: of snapshots that are not taken.
    """

    known: SnapshotsTaken
    landed: Mapping[str, _Snapshot]
    new: tuple[_Snapshot, ...]
    touched: tuple[TakenSnapshot, ...]
    is_outdated: bool
    waits: bool
    warnings: tuple[RunWarning, ...]

    @property
    def is_some(self) -> bool:
        return bool(self.new or self.touched) or self.is_outdated or self.known.begun is not None


def survey(run: TableRun) -> SnapshotSurvey:
    """List the snapshots of a table.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
        RetriableError: as `Storage`.
    """
    known = read_small(run.runtime.storage, _document(run), SnapshotsTaken, _REMEDY) or SnapshotsTaken()
    landed, others = _landed(run)
    held = {one.version: one for one in known.held if _is_held(run, one, landed)}
    others_known = {*held, *(one.version for one in known.taken)}
    new = [one for version, one in sorted(landed.items()) if version not in others_known]
    waiting = [one for one in new if one.waits]
    there = [one for one in known.taken if one.version in landed]
    touched = tuple(one for one in there if landed[one.version].digest != one.files)
    changed = sorted(one.version for one in there if one.changed)
    problems = [(one.version, one.why) for _, one in sorted(held.items())]
    problems += [(version, "it changed after it was taken; its new content is ignored") for version in changed]
    waits = [(one.version, one.waits) for one in waiting]
    warnings = []
    if problems:
        warnings.append(RunWarning(code="SNAPSHOT_HELD", **_of_snapshots(problems)))
    if waits:
        warnings.append(RunWarning(code="SNAPSHOT_WAITING", **_of_snapshots(waits)))
    if others:
        warnings.append(_ignored(others))
    place = LandingFolder.of(run.job.roots, run.spec).path
    if not (landed or others or run.runtime.storage.exists(place)):
        warnings.append(notices.of_missing_folder(place, folders_like(run.runtime.storage, place)))
    ready = tuple(one for one in new if not one.waits)
    return SnapshotSurvey(
        known=known, landed=landed, new=ready, touched=touched, waits=bool(waiting), warnings=tuple(warnings),
        is_outdated=any(version not in landed for version in known.faulty),
    )  # fmt: skip


def capture(run: TableRun, totals: RunTotals) -> None:
    """Write the changes of the snapshots that are new, as change files of the table.

    A reload takes all snapshots that are there again.

    Raises:
        FatalError: `LEDGER_DAMAGED`; `RELOAD_UNFINISHED`; as `require_same_identity`.
        RetriableError: `TABLE_BUSY`, `JOB_CANCELLED`; as `Storage`.
    """
    options, ledger = run.job.options, run.ledger()
    plan = ledger.plan()
    is_resumed = plan is not None and plan.mode == "refresh" and plan.source != "changes"
    again = options.reload and not is_resumed
    if not options.reload:
        require_same_identity(run.spec, ledger.state)
    _remove_ingested(run, ledger)
    found = survey(run)
    faulty = found.known.faulty
    if found.known.reloading and not (again or is_resumed):
        what = f"{run.spec.table}: a reload from its snapshots was interrupted before it began"
        raise FatalError("RELOAD_UNFINISHED", what, remedy=f"{_RELOAD} {run.spec.table}")
    if again or found.is_some:
        root = join(run.layout.state, _FOLDER)
        wait = options.wait_seconds
        with Claim.acquire(run.runtime.storage, root, run.job.run_id, run.runtime.clock, wait) as claim:
            if again:
                with run.claim():  # of a table that is busy nothing is forgotten
                    _forget(run, claim)
            found = survey(run)
            _Capture(run, claim, found.landed, found.known).take(found)
        found = survey(run)
    if faulty and not found.known.faulty:
        message = "snapshots that were held were taken, or removed, or are again as they were when they were taken"
        totals.warn([RunWarning(code="SNAPSHOT_CLEARED", message=message, count=len(faulty), sample=faulty[:5])])
    totals.warn(found.warnings)
    totals.revisit = found.waits


def end_capture(run: TableRun) -> None:
    """After a load: remove the change files that it took, and note that a reload has ended."""
    known = read_small(run.runtime.storage, _document(run), SnapshotsTaken, _REMEDY)
    _remove_ingested(run, run.ledger())
    if known is not None and known.reloading:
        run.runtime.storage.write(_document(run), codec.to_json(replace(known, reloading=False)).encode())


def _document(run: TableRun) -> str:
    return join(run.layout.state, _FOLDER, _DOCUMENT)


def _is_held(run: TableRun, one: HeldSnapshot, landed: Mapping[str, _Snapshot]) -> bool:
    there = landed.get(one.version)
    released = run.job.options.action == "sweep_release"
    return not released and there is not None and (there.digest, run.spec.sweep_limit) == (one.files, one.sweep_limit)


def _of_snapshots(problems: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Fields of a warning about versions, each with its reason."""
    version, why = problems[0]
    more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    sample = tuple(version for version, _ in problems[1:5])
    return {"message": f"snapshot {_title(version)}: {why}{more}", "count": len(problems), "sample": sample}


def _ignored(names: Sequence[str]) -> RunWarning:
    what = f"{len(names)} files are in no folder of a snapshot, and are ignored, e.g. {names[0]}"
    return RunWarning(code="FILES_IGNORED", message=what, count=len(names), sample=tuple(names[:5]))


def _title(version: str) -> str:
    time = moment(version)
    return version if time is None else time.isoformat(sep=" ", timespec="minutes")


def _landed(run: TableRun) -> tuple[dict[str, _Snapshot], list[str]]:
    """Snapshots by version, and names of data files outside of their folders."""
    options, folder = run.dialect.options, LandingFolder.of(run.job.roots, run.spec)
    pattern = PathFormat.parsed(str(options.path_format))
    complete = str(options.complete)
    found: defaultdict[str, list[StoredObject]] = defaultdict(list)
    others = []
    for item in run.runtime.storage.list(folder.path, within=folder.root):
        version = pattern.whole_time(item.name)
        if version is not None:
            found[version].append(item)
        elif not is_temporary(item.name) and not item.name.endswith("/"):
            others.append(item.name)
    depth = pattern.text.strip("/").count("/") + 1
    now, settle = run.runtime.clock().timestamp(), settle_of(run.spec, folder.path, run.runtime.environ)
    made = {
        version: _Snapshot(
            version=version,
            files=tuple(one for one in items if _is_data(one.name, complete, depth)),
            waits=_why_incomplete(items, complete, depth, (settle, now)),
        )
        for version, items in found.items()
    }  # fmt: skip
    return made, others


def _is_data(name: str, complete: str, depth: int) -> bool:
    return not (is_temporary(name) or name.endswith("/") or _is_marker(name, complete, depth))


def _is_marker(name: str, complete: str, depth: int) -> bool:
    """Whether it is the file that shows that a snapshot is complete; those in folders below show that of a part."""
    return name.count("/") == depth and name.rpartition("/")[2] == complete


def _why_incomplete(items: Sequence[StoredObject], complete: str, depth: int, settled: tuple[timedelta, float]) -> str:
    """Why a snapshot may still be written; empty: it is complete."""
    data, (settle, now) = [one for one in items if _is_data(one.name, complete, depth)], settled
    if refused := next((f"{one.name} is refused: {one.refused}" for one in items if one.refused), ""):
        return refused
    if complete.isdigit():
        return "" if len(data) >= int(complete) else f"it has {len(data)} of {complete} files"
    if complete != "settle":
        there = any(_is_marker(one.name, complete, depth) for one in items)
        return "" if there else f"it has no file {complete}, which is written when a snapshot is complete"
    newest = max((one.modified for one in items), default=now)
    left = settle.total_seconds() - (now - newest)
    return f"its newest file is younger than `settle`, {settle}" if left > 0 else ""


def _remove_ingested(run: TableRun, ledger: Ledger) -> None:
    """Remove change files that were ingested: their rows are in the change table."""
    known = {path for path, entry in ledger.entries().items() if entry.state == "committed"}
    there = [item.path for item in run.runtime.storage.list(run.layout.landing)]
    if done := [path for path in there if path in known]:
        run.runtime.storage.delete(*done)


def _forget(run: TableRun, claim: Claim) -> None:
    """Take all snapshots that are there again."""
    claim.check()
    storage = run.runtime.storage
    known = read_small(storage, _document(run), SnapshotsTaken, _REMEDY) or SnapshotsTaken()
    storage.write(_document(run), codec.to_json(SnapshotsTaken(last=known.last, reloading=True)).encode())
    if there := [item.path for item in storage.list(run.layout.landing)]:
        storage.delete(*there)


@dataclass
class _Capture:
    run: TableRun
    claim: Claim
    landed: Mapping[str, _Snapshot]
    known: SnapshotsTaken

    def take(self, found: SnapshotSurvey) -> None:
        """Take snapshots, in order of their versions; one that can't be taken does not hold the others."""
        self._drop_begun()
        if found.is_outdated:
            now = self.known.only_of(self.landed)
            self._keep(held=now.held, taken=now.taken)
        for one in found.touched:
            self._look_again(one)
        for snapshot in found.new:
            self.run.go_on()
            try:
                self._take(snapshot)
            except QuarantinableError as error:
                self._drop_begun()
                self._hold(snapshot, error.what)

    def _take(self, snapshot: _Snapshot) -> None:
        taken = sorted(one.version for one in self.known.taken)
        before = self._neighbour(max((one for one in taken if one < snapshot.version), default=None))
        after = self._neighbour(min((one for one in taken if one > snapshot.version), default=None))
        if after is not None:
            self._require_remembered(snapshot.version)
        now = self.run.runtime.clock()
        content = snapshot.content(self.run.runtime.storage)
        begun = TakenSnapshot(version=snapshot.version, files=snapshot.digest, content=content, at=iso(now))
        first = self._next_name(self.known.last)
        self._keep(begun=begun, first=first)
        columns = frozenset(self.known.columns)
        with _Compared(self.run, before, snapshot, after, columns) as compared:
            self._require_as_listed(*(one for one in (before, snapshot, after) if one is not None))
            self._require_within_limit(compared)
            for version, changes in compared.changes():
                self._write(version, changes)
        if compared.changed:
            self.run.report("changes of a snapshot written", rows=compared.changed)
        held = tuple(one for one in self.known.held if one.version != snapshot.version)
        names = tuple(sorted(columns | compared.names))
        self._keep(
            begun=None, taken=(*self.known.taken, begun), held=held, columns=names, remembered=self._remembered()
        )

    def _look_again(self, taken: TakenSnapshot) -> None:
        """Note whether files that were written again have another content."""
        landed = self.landed[taken.version]
        changed = landed.content(self.run.runtime.storage) != taken.content
        now = replace(taken, files=landed.digest, changed=changed)
        self._keep(taken=tuple(now if one.version == now.version else one for one in self.known.taken))

    def _neighbour(self, version: str | None) -> _Snapshot | None:
        if version is None:
            return None
        taken = next(one for one in self.known.taken if one.version == version)
        there = self.landed.get(version)
        if there is not None and there.digest == taken.files and not taken.changed:
            return there
        became = "has changed since" if there is not None else "is no longer there"
        what = f"snapshot {_title(version)}, which it is compared with, {became}"
        raise QuarantinableError("SNAPSHOT_HELD", f"{what}; restore its files, or {_RELOAD} {self.run.spec.table}")

    def _require_as_listed(self, *read: _Snapshot) -> None:
        """Refuse differences of snapshots that were written again while they were read.

        Their content may be in the end what it was, so that no later run would see that other rows were compared.

        Raises:
            RetriableError: `FILES_CHANGED`.
        """
        there, _ = _landed(self.run)
        for one in read:
            if one.version not in there or there[one.version].digest != one.digest:
                raise _files_changed(one.version, LandingFolder.of(self.run.job.roots, self.run.spec).path)

    def _require_remembered(self, version: str) -> None:
        """Refuse a late snapshot if deletes of one after it may be forgotten: its rows would come back."""
        oldest = min(datetime.fromisoformat(one.at) for one in self.known.taken if one.version > version)
        age, most = self.run.runtime.clock() - oldest, timedelta(seconds=self._remembered())
        if age > most:
            what = f"one after it was taken {age.days} days ago, and deletes are remembered for tombstone_retention"
            what += f", which was {most}; remove it, or {_RELOAD} {self.run.spec.table}"
            raise QuarantinableError("SNAPSHOT_HELD", what)

    def _remembered(self) -> int:
        now = seconds(self.run.spec.tombstone_retention)
        return min(now, self.known.remembered or now)

    def _require_within_limit(self, compared: _Compared) -> None:
        deletes, keys = compared.deletes, compared.keys_before
        if self.run.job.options.action == "sweep_release" or not keys or deletes <= self.run.spec.sweep_limit * keys:
            return
        what = f"it lacks {deletes} of {keys} keys of the one before, more than sweep_limit allows"
        raise QuarantinableError(
            "SNAPSHOT_HELD", f"{what}; if that is right: gddl sweep release --table {self.run.spec.table}"
        )

    def _write(self, version: str, changes: SnapshotChanges) -> None:
        operation = self.run.dialect.op_column
        for start in range(0, changes.rows.num_rows, _ROWS_A_FILE):
            rows = changes.rows.slice(start, _ROWS_A_FILE)
            time = moment(version)
            committed = None if time is None else time.replace(tzinfo=UTC)
            found = {
                operation: changes.ops.slice(start, _ROWS_A_FILE),
                SEQUENCE: pa.repeat(version, rows.num_rows),
                _COMMITTED: pa.repeat(pa.scalar(committed, pa.timestamp("us", tz="UTC")), rows.num_rows),
                **{name_in_files(name, operation): rows.column(name) for name in rows.column_names},
            }
            content = io.BytesIO()
            pq.write_table(pa.table(found), content, compression="zstd")
            name = self._next_name(self.known.last)
            self._keep(last=name)
            self.run.runtime.storage.write(join(self.run.layout.landing, f"{name}.parquet"), content.getvalue())
            self.run.go_on()

    def _next_name(self, last: str) -> str:
        """A name of change files that sorts after the last one, also after a clock was set back."""
        now = self.run.runtime.clock().astimezone(UTC).replace(tzinfo=None)
        before = moment(last.replace("-", "")) if last else None
        digits = digits_of(now if before is None else max(now, before + timedelta(milliseconds=1)))
        return f"{digits[:8]}-{digits[8:]}"

    def _drop_begun(self) -> None:
        """Remove the files of a snapshot that was not taken to its end."""
        if self.known.begun is None:
            return
        landing, first = self.run.layout.landing, self.known.first
        if there := [item.path for item in self.run.runtime.storage.list(landing) if item.name >= first]:
            self.run.runtime.storage.delete(*there)
        self._keep(begun=None)

    def _hold(self, snapshot: _Snapshot, why: str) -> None:
        one = HeldSnapshot(
            version=snapshot.version, files=snapshot.digest, sweep_limit=self.run.spec.sweep_limit, why=why
        )
        self._keep(held=(*(other for other in self.known.held if other.version != one.version), one))

    def _keep(self, **changes: object) -> None:
        self.claim.check()
        self.known = replace(self.known, **changes)  # type: ignore[arg-type]  # names of its fields
        self.run.runtime.storage.write(_document(self.run), codec.to_json(self.known).encode())


_SIDES = ("before", "snapshot", "after")


@dataclass
class _Compared:
    """A snapshot and those around it, read once; rows that are too many for memory are in files, by parts of the keys.

    Attributes:
        deletes: keys of the one before that the snapshot lacks.
        keys_before: keys of the one before.
        columns: names in lower case of all columns that came in earlier ones.
        changed: changes, of this snapshot and the one after.
        names: names in lower case of the columns of all three.
    """

    run: TableRun
    before: _Snapshot | None
    snapshot: _Snapshot
    after: _Snapshot | None
    columns: frozenset[str]
    deletes: int = 0
    keys_before: int = 0
    changed: int = 0
    names: set[str] = field(default_factory=set)
    _keys: tuple[str, ...] = ()
    _parts: int = 1
    _rows: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    _spill: Path | None = None
    _found: list[tuple[str, SnapshotChanges]] = field(default_factory=list)

    def __enter__(self) -> _Compared:
        sides = dict(zip(_SIDES, (self.before, self.snapshot, self.after), strict=True))
        size = sum(one.size for one in sides.values() if one is not None)
        self._parts = 1 + size * _WEIGHT // _DECODED_BYTES
        if self._parts > 1:
            self._spill = scratch.make("snapshots")
        try:
            for side, one in sides.items():
                for number, rows in enumerate(self._read(one) if one is not None else ()):
                    self._keep(side, number, rows)
            self._compare()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._spill is not None:
            scratch.remove(self._spill)

    def changes(self) -> Iterator[tuple[str, SnapshotChanges]]:
        """Changes, and the version that they have as their sequence.

        Deletes of all parts come first, for the reason that they do in one.
        """
        if self._parts == 1:
            yield from self._found
            return
        for is_delete in (True, False):
            for part in range(self._parts):
                for version, changes in self._of_part(part):
                    yield version, changes.where(is_delete=is_delete)

    def _compare(self) -> None:
        for part in range(self._parts):
            found = list(self._of_part(part))
            self.run.go_on()
            own = [one for version, one in found if version == self.snapshot.version]
            self.deletes += sum(one.deletes for one in own)
            self.keys_before += sum(one.keys_before for one in own)
            self.changed += sum(one.rows.num_rows for _, one in found)
            self._found = found

    def _of_part(self, part: int) -> Iterator[tuple[str, SnapshotChanges]]:
        before, snapshot, after = (self._of_side(side, part) for side in _SIDES)
        like = before if snapshot is None else snapshot
        if like is None:
            return
        nothing = like.slice(0, 0)
        before, snapshot = (nothing if one is None else one for one in (before, snapshot))
        snapshot = self._with_dropped(before, snapshot)
        if after is None and self.after is not None:
            after = nothing
        own, back = differences(before, snapshot, after, self._keys, self.columns)
        yield self.snapshot.version, own
        if self.after is not None:
            yield self.after.version, back

    def _with_dropped(self, before: pa.Table, snapshot: pa.Table) -> pa.Table:
        """The snapshot, and under `dropped_column: null` the columns that only the one before has, which are null."""
        policy = self.run.spec.schema_evolution.dropped_column
        lost = [field for field in before.schema if field.name not in snapshot.column_names]
        if lost and policy == "fail":
            what = f"it lacks column {lost[0].name}, and the row says dropped_column: fail"
            raise QuarantinableError("SNAPSHOT_HELD", f"{what}; write it again, or change the policy")
        for column in lost if policy == "null" else ():
            snapshot = snapshot.append_column(column, pa.nulls(snapshot.num_rows, column.type))
        return snapshot

    def _of_side(self, side: str, part: int) -> pa.Table | None:
        """Rows of one of the snapshots; None: it has none."""
        if self._spill is None:
            tables = self._rows.get((side, part), [])
        else:
            tables = [_stored(path) for path in sorted(self._spill.glob(f"{side}-{part}-*"))]
        try:
            return pa.concat_tables(tables, promote_options="permissive") if tables else None
        except pa.ArrowException as error:
            raise QuarantinableError("SNAPSHOT_HELD", f"columns of its files differ: {error}") from error

    def _read(self, snapshot: _Snapshot) -> Iterator[pa.Table]:
        storage, dialect = self.run.runtime.storage, self.run.dialect
        for item in snapshot.files:
            found = probe(storage, _planned(item), dialect.options, dialect.bounds)
            groups: list[range | None] = [range(i, i + 1) for i in range(len(found.row_groups))]
            for group in groups if groups and self._parts > 1 else [None]:
                rows = read_file(storage, found, group)
                if isinstance(rows, Unreadable):
                    raise QuarantinableError("SNAPSHOT_HELD", f"{item.name}: {rows.reason}", where=item.path)
                if rows.malformed is not None and (bad := rows.rows - rows.malformed.null_count):
                    what = f"{item.name}: {bad} lines have more or fewer fields than there are columns"
                    raise QuarantinableError("SNAPSHOT_HELD", what, where=item.path)
                self.run.go_on()
                yield pa.table(list(rows.columns), names=[name for name, _ in found.columns])

    def _keep(self, side: str, number: int, rows: pa.Table) -> None:
        if len(set(rows.column_names)) < rows.num_columns:
            what = f"a column comes twice in a file; it has {', '.join(rows.column_names[:10])}"
            raise QuarantinableError("SNAPSHOT_HELD", what)
        self.names.update(name.lower() for name in rows.column_names)
        keys = _keys_of(rows, self.run)
        if self._keys and keys != self._keys:
            what = f"its key columns are {', '.join(keys)}, and {', '.join(self._keys)} in another snapshot"
            raise QuarantinableError("SNAPSHOT_HELD", f"{what}; write it again, or {_RELOAD} {self.run.spec.table}")
        self._keys = keys
        if self._spill is None:
            self._rows.setdefault((side, 0), []).append(rows)
            return
        parts = _parts_of(rows, keys, self._parts)
        for part in np.unique(parts).tolist():
            _store(self._spill / f"{side}-{part}-{number:09d}", rows.filter(pa.array(parts == part)))


def _planned(item: StoredObject) -> PlannedFile:
    name = item.name.rpartition("/")[2].lower()
    is_csv = ".csv" in name and not name.endswith(".parquet")
    return PlannedFile(
        path=item.path, kind="change", format="csv" if is_csv else "parquet", size=item.size,
        etag=item.etag, modified="", fingerprint="", generation=0,
    )  # fmt: skip


def _keys_of(rows: pa.Table, run: TableRun) -> tuple[str, ...]:
    """The key columns, as the snapshot names them."""
    names = {landed_name(renamed(name, run.spec)).lower(): name for name in rows.column_names}
    if missing := [key for key in run.spec.keys if key.lower() not in names]:
        what = f"it has no key column {missing[0]}; it has {', '.join(rows.column_names[:10])}"
        raise QuarantinableError("SNAPSHOT_HELD", what)
    return tuple(names[key.lower()] for key in run.spec.keys)


def _parts_of(rows: pa.Table, keys: Sequence[str], parts: int) -> np.ndarray:
    """The part of each row, by its key; numbers and times that are equal are in the same one, whatever their types."""
    columns = [rows.column(key).to_pylist() for key in keys]
    texts = ("\0".join(map(_key_text, key)) for key in zip(*columns, strict=True))
    return np.fromiter((zlib.crc32(text.encode("utf-8", "replace")) % parts for text in texts), np.int64, rows.num_rows)


def _key_text(value: object) -> str:
    if isinstance(value, int | float | Decimal) and value == value:  # noqa: PLR0124 - NaN has a hash of its own
        return str(hash(value))
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return str(value)


def _store(path: Path, rows: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


def _stored(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as file:
        return pa.ipc.open_file(file).read_all()
