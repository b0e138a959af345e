"""Snapshots as a source (`mode: snapshots`): each export of a whole table becomes change files (docs/snapshots.md).

These hold its differences by key from the exports around it (docs/decisions/sources-and-security.md).

A snapshot is a folder of time below the table's landing folder. The files that are written are those that AWS DMS
would write, in a folder of the lake; the run takes them as it takes any change files, so that everything after is the
same. A snapshot is noted as begun, its files are written, then it is noted as taken. After a kill it is taken again,
by the same names.
"""

from __future__ import annotations

import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import (
    BAD_ROWS,
    COLUMN_NAME_RESERVED,
    COLUMN_NAMES_COLLIDE,
    COLUMN_TYPE_UNSUPPORTED,
    EXPECTATION_FAILED,
    FILES_CHANGED,
    FILES_IGNORED,
    FILTER_COLUMN_MISSING,
    FOLDER_MISSING,
    KEY_COLUMN_MISSING,
    RELOAD_UNFINISHED,
    SCHEMA_INCOMPATIBLE,
    SCHEMA_REFUSED,
    SNAPSHOT_CLEARED,
    SNAPSHOT_HELD,
    SNAPSHOT_WAITING,
)
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, QuarantinableError, RetriableError
from airflow_gddl.contract.file_names import OF_SNAPSHOT, PathFormat, digits_of, is_temporary, moment
from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.contract.result import JobResult, RunWarning, Warnings
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.stores import Storage
from airflow_gddl.stores.readers import StoredObject
from spark_jobs.batch import notices
from spark_jobs.batch.own_tables import has_all_changes
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.discovery import folders_like, settle_of
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.taken_snapshots import (
    HeldSnapshot,
    SnapshotsTaken,
    TakenSnapshot,
    document_of,
    folder_of,
    read_taken,
    reload_of,
)
from spark_jobs.plan.identity import has_same_mode, require_same_identity
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.dms import SEQUENCE, name_in_files
from spark_jobs.rooms.sources.snapshots.comparison import Comparison, planned
from spark_jobs.rooms.sources.snapshots.folders import foreign_logs

_COMMITTED = "AR_H_COMMIT_TIMESTAMP"
_AHEAD = timedelta(days=1)
"""How far the time of a snapshot may be ahead of the clock: folders name no zone, and some name the next day."""
_OF_CONTENT = (
    BAD_ROWS, COLUMN_NAMES_COLLIDE, COLUMN_NAME_RESERVED, COLUMN_TYPE_UNSUPPORTED, EXPECTATION_FAILED,
    FILTER_COLUMN_MISSING, KEY_COLUMN_MISSING, SCHEMA_INCOMPATIBLE, SCHEMA_REFUSED,
)  # fmt: skip
"""Errors of a load for which what a snapshot holds can be the cause."""
_OF_CAPTURE = (SNAPSHOT_HELD, SNAPSHOT_WAITING, SNAPSHOT_CLEARED, FILES_IGNORED, FOLDER_MISSING)
"""Warnings of a capture."""


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """A snapshot that landed.

    Attributes:
        waits: why it may not be taken yet; empty: it may.
        foreign: why its files may not be all that counts, see `foreign_logs`; empty: they are.
    """

    version: str
    files: tuple[StoredObject, ...]
    waits: str = ""
    foreign: str = ""

    @property
    def digest(self) -> str:
        return _digest([*(f"{one.name}\t{one.size}\t{one.etag}" for one in self.files), *filter(None, [self.foreign])])

    def content(self, storage: Storage, *, of_bytes: bool = False) -> str:
        """Reads the files, where the store may have no digests of them.

        Args:
            of_bytes: tags that objects would have if each was written in one part and not encrypted with KMS.

        Raises:
            RetriableError: `FILES_CHANGED`: one was written again, or removed, since it was listed.
        """

        def fingerprint(one: StoredObject) -> str:
            if not (of_bytes and is_s3(one.path)):
                return storage.fingerprint_as_listed(one)
            print_of = storage.fingerprints_of_bytes(one.path)[1]
            storage.require_as_listed(one)
            return print_of

        try:
            return _digest(f"{one.name}\t{fingerprint(one)}" for one in self.files)
        except FileNotFoundError as error:
            raise _files_changed(self.version, error.filename) from error


def _files_changed(version: str, where: str) -> RetriableError:
    what = f"a file of snapshot {_title(version)} was written again or removed since it was listed"
    return RetriableError(FILES_CHANGED, what, where=where, remedy="nothing: the next run reads the snapshot again")


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
        ahead: versions of taken ones whose time has not come, so that all others count as late.
        warnings: of snapshots that are not taken.
    """

    known: SnapshotsTaken
    landed: Mapping[str, _Snapshot]
    new: tuple[_Snapshot, ...]
    touched: tuple[TakenSnapshot, ...]
    is_outdated: bool
    waits: bool
    ahead: tuple[str, ...]
    warnings: Warnings

    @property
    def waiting_since(self) -> Iterator[str]:
        """When snapshots landed that are held or not complete, and newer than all that were taken."""
        newest = max((one.version for one in self.known.taken), default="")
        held = {one.version for one in self.known.held}
        for version, one in self.landed.items():
            if version > newest and (version in held or one.waits):
                yield from (file.modified_at for file in one.files)

    @property
    def is_some(self) -> bool:
        return bool(self.new or self.touched) or self.is_outdated or self.known.begun is not None

    @property
    def faulty(self) -> tuple[str, ...]:
        """Versions that are held, that changed after they were taken, or that hold all others."""
        return (*self.known.faulty, *self.ahead)


def survey(run: TableRun, *, released: bool | None = None) -> SnapshotSurvey:
    """List the snapshots of a table.

    Args:
        released: whether held ones are tried again; None: if a user has released them.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
        RetriableError: as `Storage`.
    """
    known = _known(run)
    landed, others = _landed(run)
    released = run.job.options.releases("sweep") if released is None else released
    held = {one.version: one for one in known.held if not released and _is_held(run, one, landed)}
    others_known = {*held, *(one.version for one in known.taken)}
    new = [one for version, one in sorted(landed.items()) if version not in others_known]
    waiting = [one for one in new if one.waits]
    there = [one for one in known.taken if one.version in landed]
    touched = tuple(one for one in there if landed[one.version].digest != one.files)
    changed = sorted(one.version for one in there if one.changed)
    ahead = tuple(sorted(one.version for one in known.taken if _comes(one.version) > run.runtime.clock()))
    problems = [(one.version, one.why) for _, one in sorted(held.items())]
    problems += [(version, "it changed after it was taken; its new content is ignored") for version in changed]
    late = (
        f"its time has not come, and it was taken: all others count as late; remove it, and {reload_of(run.spec.table)}"
    )
    problems += [(version, late) for version in ahead]
    warnings = [
        *_of_snapshots(SNAPSHOT_HELD, problems),
        *_of_snapshots(SNAPSHOT_WAITING, [(one.version, one.waits) for one in waiting]),
    ]
    if others:
        warnings.append(_ignored(others))
    place = LandingFolder.of(run.job.roots, run.spec).path
    if not (landed or others or run.runtime.storage.exists(place)):
        warnings.append(notices.of_missing_folder(place, folders_like(run.runtime.storage, place)))
    ready = tuple(one for one in new if not one.waits)
    return SnapshotSurvey(
        known=known, landed=landed, new=ready, touched=touched, waits=bool(waiting), ahead=ahead,
        warnings=tuple(warnings), is_outdated=any(version not in landed for version in known.faulty),
    )  # fmt: skip


def exported_files(run: TableRun) -> tuple[PlannedFile, ...]:
    """The files of all snapshots that are there."""
    return tuple(planned(file) for snapshot in _landed(run)[0].values() for file in snapshot.files)


def load_snapshots(run: TableRun, totals: RunTotals, load: Callable[[TableRun, RunTotals], JobResult]) -> JobResult:
    """Take the snapshots that are new, and load their changes.

    Where the load refuses what one of several holds, each is taken and loaded by itself. One that is refused is held
    if there is a newer one; the newest fails the run, and is tried again by the next.

    Args:
        load: loads the change files.

    Raises:
        GddlError: as `capture`, `load`.
    """
    former = capture(run, totals)
    before = _copied(totals)
    try:
        result = load(run, totals)
    except FatalError as error:
        if former is not None:
            _undo_reload(run, former)
        if error.code not in _OF_CONTENT or former is not None or len(_not_loaded(run)) < 2:
            raise
        result = _each_by_itself(run, totals, before, load)
    _end_capture(run)
    return result


def _each_by_itself(
    run: TableRun, totals: RunTotals, before: RunTotals, load: Callable[[TableRun, RunTotals], JobResult]
) -> JobResult:
    while True:
        _restore(totals, before)
        capture(run, totals, most=1)
        more, before = bool(survey(run, released=False).new), _copied(totals)
        try:
            result = load(run, totals)
        except FatalError as error:
            waiting = _not_loaded(run)
            if error.code not in _OF_CONTENT or not more or not waiting:
                raise
            _hold_refused(run, waiting[-1].version, error)
            continue
        if not more:
            return result


def _copied(totals: RunTotals) -> RunTotals:
    return replace(totals, warnings=dict(totals.warnings), schema_changes=list(totals.schema_changes))


def _restore(totals: RunTotals, before: RunTotals) -> None:
    """The totals without what an attempt has counted that committed nothing, and without what is asked anew."""
    if totals.batches == before.batches:
        for field in fields(before):
            setattr(totals, field.name, getattr(before, field.name))
    for code in _OF_CAPTURE:
        totals.warnings.pop(code, None)


def capture(run: TableRun, totals: RunTotals, most: int | None = None) -> SnapshotsTaken | None:
    """Write the changes of the snapshots that are new, as change files of the table.

    A reload takes all snapshots that are there again, and so does a rebuild of a table that has lost its changes. What
    was taken and not loaded is taken again, as it, and the row, are now.

    Args:
        most: how many to take; None: all.

    Returns:
        what was known before all of it was taken again; None: it was not.

    Raises:
        FatalError: `LEDGER_DAMAGED`; `RELOAD_UNFINISHED`; as `require_same_identity`.
        RetriableError: `TABLE_BUSY`, `JOB_CANCELLED`; as `Storage`.
    """
    ledger = run.ledger()
    plan = ledger.plan()
    is_resumed = plan is not None and plan.mode == "refresh" and plan.source != "changes"
    again = not is_resumed and _takes_all(run, ledger)
    if not (run.job.options.repairs and has_same_mode(run.spec, ledger.state)) and not again:
        require_same_identity(run.spec, ledger.state)
    _remove_ingested(run, ledger)
    former = None
    surveyed = survey(run)
    faulty = surveyed.faulty
    if surveyed.known.reloading and not (again or is_resumed):
        what = f"{run.spec.table}: a reload from its snapshots was interrupted before it began"
        raise FatalError(RELOAD_UNFINISHED, what, remedy=reload_of(run.spec.table))
    waiting = () if is_resumed else _not_loaded(run)
    if again or surveyed.is_some or waiting:
        with _claimed(run) as claim:
            if again or waiting:
                with run.claim():  # of a table that is busy nothing is forgotten
                    _withdraw(run, claim)
                    former = _forget(run, claim) if again else None
            surveyed = survey(run)
            known = surveyed.known.after_load(_loaded_files(run, surveyed.known))
            _Capture(run, claim, surveyed.landed, known).take(surveyed, most)
        surveyed = survey(run, released=False)
    if faulty and not surveyed.faulty:
        message = "snapshots that were held were taken, or removed, or are again as they were when they were taken"
        totals.warn([RunWarning(code=SNAPSHOT_CLEARED, message=message, count=len(faulty), sample=faulty[:5])])
    totals.warn(surveyed.warnings)
    totals.wait(surveyed.waiting_since)
    totals.revisit = surveyed.waits
    return former


def has_work(run: TableRun, totals: RunTotals) -> bool:
    """Whether there are snapshots to take, or taken ones to load: they are read whole, which is no part of a poll."""
    if survey(run).is_some or _not_loaded(run):
        return True
    capture(run, totals)
    return False


def _takes_all(run: TableRun, ledger: Ledger) -> bool:
    """Whether all snapshots that are there are taken again."""
    options = run.job.options
    if options.reloads:
        return True
    return options.repairs and not (ledger.state.keys is not None and has_all_changes(run, ledger))


def _end_capture(run: TableRun) -> None:
    """After a load: remove the change files that it took, and note that a reload has ended."""
    known = read_taken(run.runtime.storage, run.layout.state)
    _remove_ingested(run, run.ledger())
    if known is not None and known.reloading:
        _write(run, replace(known, reloading=False))


def _known(run: TableRun) -> SnapshotsTaken:
    return read_taken(run.runtime.storage, run.layout.state) or SnapshotsTaken()


def _claimed(run: TableRun) -> Claim:
    """Of the snapshots, beside that of the table."""
    root, options = folder_of(run.layout.state), run.job.options
    return Claim.acquire(run.runtime.storage, root, run.job.run_id, run.runtime.clock, options.wait_seconds)


def _remove_files(run: TableRun, from_name: str = "") -> None:
    """Remove change files that wait, those of this name and after."""
    storage = run.runtime.storage
    if there := [item.path for item in storage.list(run.layout.landing) if item.name >= from_name]:
        storage.delete(*there)


def _write(run: TableRun, known: SnapshotsTaken) -> None:
    known = replace(known, landing=LandingFolder.of(run.job.roots, run.spec).path)
    run.runtime.storage.write(document_of(run.layout.state), codec.to_json(known).encode())


def _loaded_files(run: TableRun, known: SnapshotsTaken) -> frozenset[str]:
    """Names of those change files that are in the change table, of snapshots that may not be loaded."""
    names = {name for one in known.taken for name in one.change_files}
    if not names:
        return frozenset()
    ledger = run.ledger()
    for entries in (ledger.entries, ledger.all_entries):
        loaded = {path.rpartition("/")[2] for path, entry in entries().items() if entry.state == "committed"}
        if names <= loaded:
            break
    plan = ledger.plan()
    appended = plan is not None and plan.source == "files" and run.context().has_appended(plan)
    resumed = {file.path.rpartition("/")[2] for file in plan.files} if plan is not None and appended else set()
    return frozenset(names & (loaded | resumed))


def _not_loaded(run: TableRun) -> tuple[TakenSnapshot, ...]:
    """Snapshots that were taken and of which nothing was loaded."""
    known = _known(run)
    return known.to_withdraw(_loaded_files(run, known))


def _withdraw(run: TableRun, claim: Claim) -> None:
    """Take back snapshots that were not loaded, as if they had just landed."""
    waiting = _not_loaded(run)
    if not waiting:
        return
    claim.check()
    known = _known(run)
    first = min(name for one in waiting for name in one.change_files)
    _remove_files(run, from_name=first)
    _write(run, replace(known, taken=known.taken[: -len(waiting)]))


def withdraw_unloaded(run: TableRun) -> None:
    """Remove change files of snapshots of which nothing was loaded; the next run takes them again.

    The caller holds the table's claim.
    """
    with _claimed(run) as claim:
        _withdraw(run, claim)


def _hold_refused(run: TableRun, version: str, error: FatalError) -> None:
    """Hold a snapshot whose load was refused."""
    with _claimed(run) as claim, run.claim():
        _withdraw(run, claim)
        surveyed = survey(run)
        if (snapshot := surveyed.landed.get(version)) is not None:
            _Capture(run, claim, surveyed.landed, surveyed.known).hold(
                snapshot, f"its load was refused, {error.code}: {error.what}"
            )


def _undo_reload(run: TableRun, former: SnapshotsTaken) -> None:
    """After a reload that was refused: the table goes on as it was, unless the reload can only be resumed."""
    plan = run.ledger().plan()
    if plan is not None and plan.mode == "refresh":
        return
    with _claimed(run) as claim, run.claim():
        claim.check()
        _remove_files(run)
        _write(run, replace(former, last=max(former.last, _known(run).last)))


def _is_held(run: TableRun, one: HeldSnapshot, landed: Mapping[str, _Snapshot]) -> bool:
    there = landed.get(one.version)
    if there is None or there.digest != one.files:
        return False
    if one.until:
        return run.runtime.clock() < datetime.fromisoformat(one.until)
    return one.row == _row_of(run)


def _row_of(run: TableRun) -> str:
    return _digest([codec.to_json(run.spec)])


def _comes(version: str) -> datetime:
    """From when on a snapshot may be taken, by the time of its folder."""
    time = moment(version)
    return datetime.min.replace(tzinfo=UTC) if time is None else time.replace(tzinfo=UTC) - _AHEAD


def _of_snapshots(code: str, problems: Sequence[tuple[str, str]]) -> Iterator[RunWarning]:
    """A warning about versions, each with its reason; none where there are none."""
    for version, why in problems[:1]:
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        sample = tuple(version for version, _ in problems[1:5])
        message = f"snapshot {_title(version)}: {why}{more}"
        yield RunWarning(code=code, message=message, count=len(problems), sample=sample)


def _ignored(names: Sequence[str]) -> RunWarning:
    what = f"{len(names)} files are in no folder of a snapshot, and are ignored, e.g. {names[0]}"
    return RunWarning(code=FILES_IGNORED, message=what, count=len(names), sample=tuple(names[:5]))


def _title(version: str) -> str:
    time = moment(version)
    return version if time is None else time.isoformat(sep=" ", timespec="minutes")


def _landed(run: TableRun) -> tuple[dict[str, _Snapshot], list[str]]:
    """Snapshots by version, and names of data files outside of their folders."""
    options, folder = run.dialect.options, LandingFolder.of(run.job.roots, run.spec)
    pattern = PathFormat.parsed(str(options.path_format))
    complete = str(options.complete)
    by_version: defaultdict[str, list[StoredObject]] = defaultdict(list)
    others, names = [], []
    for item in run.runtime.storage.list(folder.path, within=folder.root):
        names.append(item.name)
        version = pattern.whole_time(item.name)
        if version is not None:
            by_version[version].append(item)
        elif not is_temporary(item.name) and not item.name.endswith("/"):
            others.append(item.name)
    depth = pattern.text.strip("/").count("/") + 1
    logs = foreign_logs(names)
    now, settle = run.runtime.clock().timestamp(), settle_of(run.spec, folder.path, run.runtime.environ)
    made = {}
    for version, items in by_version.items():
        # The file that shows that a snapshot is complete; those in folders below show that of a part.
        marks = [one for one in items if one.name.count("/") == depth and one.name.rpartition("/")[2] == complete]
        other = (one for one in items if one not in marks)
        files = tuple(one for one in other if not (is_temporary(one.name) or one.name.endswith("/")))
        is_settled = now - max(one.modified for one in items) >= settle.total_seconds()
        waits = next((f"{one.name} is refused: {one.refused}" for one in items if one.refused), "")
        if not waits and complete == "settle":
            waits = "" if is_settled else f"its newest file is younger than `settle`, {settle}"
        elif not waits and complete.isdigit():
            waits = "" if len(files) >= int(complete) else f"it has {len(files)} of {complete} files"
        elif not waits and not marks:
            waits = f"it has no file {complete}, which is written when a snapshot is complete"
        foreign = (why for of, why in logs.items() if any(one.name.startswith(of) for one in items))
        made[version] = _Snapshot(version=version, files=files, waits=waits, foreign=next(foreign, ""))
    return made, others


def _remove_ingested(run: TableRun, ledger: Ledger) -> None:
    """Remove change files that were ingested: their rows are in the change table."""
    known = {path for path, entry in ledger.entries().items() if entry.state == "committed"}
    there = [item.path for item in run.runtime.storage.list(run.layout.landing)]
    if done := [path for path in there if path in known]:
        run.runtime.storage.delete(*done)


def _forget(run: TableRun, claim: Claim) -> SnapshotsTaken:
    """Take all snapshots that are there again; returns what was known."""
    claim.check()
    known = _known(run)
    _write(run, SnapshotsTaken(last=known.last, names=known.names, reloading=True))
    _remove_files(run)
    return known


@dataclass
class _Capture:
    run: TableRun
    claim: Claim
    landed: Mapping[str, _Snapshot]
    known: SnapshotsTaken

    def take(self, surveyed: SnapshotSurvey, most: int | None = None) -> None:
        """Take snapshots, in order of their versions; one that can't be taken does not hold the others."""
        self._drop_begun()
        if surveyed.is_outdated:
            now = self.known.only_of(self.landed)
            self._keep(held=now.held, taken=now.taken)
        for one in surveyed.touched:
            self._look_again(one)
        taken = 0
        for snapshot in surveyed.new:
            if taken == most:
                break
            self.run.go_on()
            try:
                self._take(snapshot)
                taken += 1
            except QuarantinableError as error:
                self._drop_begun()
                self.hold(snapshot, error.what)

    def _take(self, snapshot: _Snapshot) -> None:
        now = self.run.runtime.clock()
        self._require_come(snapshot.version)
        if snapshot.foreign:
            raise QuarantinableError(SNAPSHOT_HELD, snapshot.foreign)
        taken = sorted(one.version for one in self.known.taken)
        before = self._neighbour(max((one for one in taken if one < snapshot.version), default=None))
        after = self._neighbour(min((one for one in taken if one > snapshot.version), default=None))
        if after is not None:
            self._require_remembered(snapshot.version)
        content = snapshot.content(self.run.runtime.storage)
        begun = TakenSnapshot(version=snapshot.version, files=snapshot.digest, content=content, at=iso(now))
        self._keep(begun=begun, first=self._next_name(self.known.last))
        sides = {"before": before, "snapshot": snapshot, "after": after}
        there = {side: one for side, one in sides.items() if one is not None}
        files, known = {side: one.files for side, one in there.items()}, frozenset(self.known.columns)
        most = self.run.runtime.limits.decoded_bytes
        with Comparison(self.run, files, known, self.known.names, most) as compared:
            self._require_as_listed(*there.values())
            self._require_within_limit(compared)
            names = self._write_changes({side: one.version for side, one in there.items()}, compared)
        if compared.changed:
            self.run.report("changes of a snapshot written", rows=compared.changed)
        held = tuple(one for one in self.known.held if one.version != snapshot.version)
        self._keep(
            begun=None, taken=(*self.known.taken, replace(begun, change_files=names)), held=held,
            columns=tuple(sorted(known | compared.columns)), names=compared.names, remembered=self._remembered(),
        )  # fmt: skip

    def _require_come(self, version: str) -> None:
        """Refuse a time that has not come: all later snapshots would be late."""
        if _comes(version) <= self.run.runtime.clock():
            return
        what = "its time is more than a day ahead of now, and all that come until then would count as late"
        raise QuarantinableError(SNAPSHOT_HELD, f"{what}; correct the name of its folder, or remove it")

    def _look_again(self, taken: TakenSnapshot) -> None:
        """Note whether files that were written again have another content."""
        landed, storage = self.landed[taken.version], self.run.runtime.storage
        changed = taken.content not in (landed.content(storage), landed.content(storage, of_bytes=True))
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
        raise QuarantinableError(SNAPSHOT_HELD, f"{what}; restore its files, or {reload_of(self.run.spec.table)}")

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
            what += f", which was {most}; remove it, or {reload_of(self.run.spec.table)}"
            raise QuarantinableError(SNAPSHOT_HELD, what)

    def _remembered(self) -> int:
        now = seconds(self.run.spec.tombstone_retention)
        return min(now, self.known.remembered or now)

    def _require_within_limit(self, compared: Comparison) -> None:
        limit, table = self.run.spec.sweep_limit, self.run.spec.table
        release = f"more than sweep_limit allows; if that is right: `gddl release sweep --table {table}`"
        if self.run.job.options.releases("sweep"):
            return
        if compared.deletes > limit * compared.keys_before:
            what = f"it lacks {compared.deletes} of {compared.keys_before} keys of the one before, {release}"
            raise QuarantinableError(SNAPSHOT_HELD, what)
        if compared.taken_back > limit * compared.keys:
            what = f"{compared.taken_back} of its {compared.keys} keys are in no other, and go with the one after it"
            raise QuarantinableError(SNAPSHOT_HELD, f"{what}, {release}")

    def _write_changes(self, versions: Mapping[str, str], compared: Comparison) -> tuple[str, ...]:
        """Write the changes of a snapshot and of the one after it; returns the names of the files."""
        operation, names, written = self.run.dialect.op_column, compared.names, list[str]()
        for side, changes in compared.changes():
            deletes = pa.repeat("D", changes.deleted.num_rows)
            for ops, rows in ((deletes, changes.deletes_like_rows()), (changes.ops, changes.rows)):
                columns = {name_in_files(names[one], operation): rows.column(one) for one in rows.column_names}
                # Columns that are left out are named, so that one that the row misspells is known.
                columns |= {name_in_files(one, operation): pa.nulls(rows.num_rows) for one in compared.left_out}
                written += self._write(versions[side], ops, columns)
        return tuple(written)

    def _write(self, version: str, ops: pa.Array, columns: Mapping[str, pa.ChunkedArray]) -> list[str]:
        time, names = moment(version), list[str]()
        committed = pa.scalar(None if time is None else time.replace(tzinfo=UTC), pa.timestamp("us", tz="UTC"))
        added = {
            self.run.dialect.op_column: ops,
            SEQUENCE: pa.repeat(version, len(ops)),
            _COMMITTED: pa.repeat(committed, len(ops)),
        }
        every, rows_a_file = pa.table({**added, **columns}), self.run.runtime.limits.rows_a_file
        for start in range(0, len(ops), rows_a_file):
            content = io.BytesIO()
            pq.write_table(every.slice(start, rows_a_file), content, compression="zstd")
            last = self._next_name(self.known.last)
            self._keep(last=last)
            names.append(f"{last}-{OF_SNAPSHOT}-{version}.parquet")
            self.run.runtime.storage.write(join(self.run.layout.landing, names[-1]), content.getvalue())
            self.run.go_on()
        return names

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
        _remove_files(self.run, from_name=self.known.first)
        self._keep(begun=None)

    def hold(self, snapshot: _Snapshot, why: str) -> None:
        """Note that a snapshot is not taken until its files or the row change, or its time comes."""
        comes = _comes(snapshot.version)
        one = HeldSnapshot(
            version=snapshot.version, files=snapshot.digest, why=why,
            row=_row_of(self.run), until=iso(comes) if comes > self.run.runtime.clock() else "",
        )  # fmt: skip
        self._keep(held=(*(other for other in self.known.held if other.version != one.version), one))

    def _keep(self, **changes: object) -> None:
        self.claim.check()
        self.known = replace(self.known, **changes)  # type: ignore[arg-type]  # names of its fields
        _write(self.run, self.known)
