"""Files that a reload of a time reads, what it refuses, and what it leaves in the ledger.

docs/semantics.md, section 13, *Reload of a time*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_gddl.contract.errors import FatalError
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.landing_range import LandingRange
from spark_jobs.plan.planned_batch import FileEntry, PlannedFile, TableState
from spark_jobs.plan.sequence import greater, sort_key
from spark_jobs.plan.table_schema import TableSchema

_SAMPLE = 3


@dataclass(frozen=True, kw_only=True)
class RangeFiles:
    """Files of a reload of a time, as they are there now.

    Attributes:
        table: its name, for messages.
        known: the ledger's row of every path.
        done: paths that are read already.
    """

    table: str
    landed: LandingRange
    known: Mapping[str, FileEntry]
    done: frozenset[str] = frozenset()

    def remaining(self, there: Iterable[PlannedFile]) -> list[PlannedFile]:
        """Files to read again, in their order and with the ledger's generations.

        They exist, were not read yet, are known to the ledger, and landed in this time, by the ledger or by now.

        A file that no batch has taken is not among them: the table's next run loads it.

        Raises:
            FatalError: `RANGE_EMPTY`, `RANGE_FILES_GONE`, `RANGE_SPLITS_LOAD`.
        """
        listed, known = {file.path: file for file in there}, self._that_count
        by_ledger = {path for path, one in known.items() if self._is_of_time(one)}
        if gone := sorted(by_ledger - listed.keys() - self.done):
            what = f"{len(gone)} files that landed {self.landed} are gone, e.g. {', '.join(gone[:_SAMPLE])}"
            remedy = "restore them, or choose another time; without a time the command archives what "
            raise _refused("RANGE_FILES_GONE", self.table, what, f"{remedy}they held")
        files = [
            replace(file, generation=known[path].generation)
            for path, file in listed.items()
            if path in known and (path in by_ledger or self.landed.holds(file.modified))
        ]
        if not files and not self.done:
            what = f"no file that was loaded landed {self.landed}"
            raise _refused("RANGE_EMPTY", self.table, what, "choose another time: that of the files' last modification")
        self._require_whole_loads(files)
        return sorted(files, key=lambda file: file.generation)

    def _is_of_time(self, entry: FileEntry) -> bool:
        return any(self.landed.holds(time) for time in (entry.modified, entry.landed) if time is not None)

    def entry(self, fresh: FileEntry, batch: int) -> FileEntry:
        """The ledger's row of a file that was read again.

        It stays of the time when it first landed, so that the same reload reads it once more.
        """
        known = self.known[fresh.path]
        is_of_known = self.landed.holds(known.modified)
        landed = known.landed or (known.modified if is_of_known else fresh.modified)
        return replace(fresh, batch=batch, landed=landed)

    @property
    def _that_count(self) -> dict[str, FileEntry]:
        """Without files whose changes a reload has archived."""
        return {path: one for path, one in self.known.items() if one.fingerprint}

    def _require_whole_loads(self, files: Sequence[PlannedFile]) -> None:
        """A full load whose content changed says nothing without the changes after it."""
        known, chosen = self._that_count, self.done.union(file.path for file in files)
        changed = [
            file for file in files
            if file.kind == "load" and (known[file.path].etag != file.etag or known[file.path].reopens)
        ]  # fmt: skip
        generations = {file.generation for file in changed}
        outside = sorted(path for path, one in known.items() if one.generation in generations and path not in chosen)
        if outside or any(known[file.path].reopens for file in changed):
            what = f"{changed[0].path} is a full load that was written again, and landed {self.landed}"
            rest = f", while {len(outside)} files of it and its changes did not, e.g. {outside[0]}" if outside else ""
            remedy = "choose a time with all of them, or let a usual run take it as a new full load"
            raise _refused("RANGE_SPLITS_LOAD", self.table, what + rest, remedy)

    def require_read(self, fresh: Mapping[str, FileEntry]) -> None:
        """Require that each file of the range could be read again.

        Raises:
            FatalError: `RANGE_UNREADABLE`: a file that was loaded can't be read now. `RANGE_NOT_KNOWN`: its changes
                were in the table when it was adopted, and which they are is not known.
        """
        unread = [p for p, one in fresh.items() if one.state == "unreadable" and self.known[p].state == "committed"]
        if unread:
            what = f"{len(unread)} files can't be read now, e.g. {min(unread)}"
            raise _refused("RANGE_UNREADABLE", self.table, what, "deliver them again")
        adopted = [p for p, one in fresh.items() if one.rows and (self.known[p].batch, self.known[p].rows) == (1, 0)]
        if adopted:
            what = f"{len(adopted)} files were in the table when it was adopted, e.g. {min(adopted)}"
            raise _refused("RANGE_NOT_KNOWN", self.table, what, "choose a time after the adoption")

    def require_uncut(self, gone: Collection[str], cut: str | None) -> None:
        """Keep no change from being archived where an older one, which it had superseded, was removed for its age.

        Args:
            gone: files of this time that hold no more what they held.
            cut: time before which superseded changes were removed; None: none were.

        Raises:
            FatalError: `RANGE_NOT_KNOWN`.
        """
        if gone and cut:
            what = f"{min(gone)} holds no more what it held, and what came before that is not known: changes from "
            what += f"before {cut} were removed (changes_retention)"
            remedy = "let a usual run take files that were written again, or reload all files, where they are there"
            raise _refused("RANGE_NOT_KNOWN", self.table, what, remedy)

    def require_sole_source(self, gone: Collection[str], recorded: Iterable[RecordedFile]) -> None:
        """Keep no change from being archived that another file had, too, and that was skipped as a re-delivery there.

        Args:
            gone: files of this time that hold no more what they held.
            recorded: what the change table has of each file.

        Raises:
            FatalError: `RANGE_OVERLAPS`.
        """
        stored = _stored(recorded)
        spans = [stored[path] for path in gone if path in stored]
        for path, entry in self._others:
            if not _is_whole(entry, stored) and any(
                span.meets(entry.min_sequence, entry.max_sequence) for span in spans
            ):
                raise self._overlaps("a file without changes that it held may share them", path, entry)

    def require_known_lists(self, places: SharedPlaces, recorded: Iterable[RecordedFile]) -> None:
        """Decide nothing where several changes of a key may share a place, unless names of files order them, and all
        that the files of other times have there is known.

        Args:
            recorded: what the change table has of each file.

        Raises:
            FatalError: `RANGE_UNORDERED`: names don't order files. `RANGE_OVERLAPS`: changes were skipped as
                re-deliveries, at a place that files of several times may have.
        """
        stored, read = _stored(recorded), _stored(places.recorded)
        orders = Counter(places.file_order(path) for path, one in self.known.items() if one.kind == "change")
        for path in sorted(places.changed):
            if (order := places.file_order(path)) is None or orders[order] > 1:
                what = f"the name of {path} does not say when among other files its changes were made, and several "
                what += "changes of a key may share a place in the table's order"
                raise _refused("RANGE_UNORDERED", self.table, what, _TOTAL_ORDER)
        changed = [parts[path] for path in places.changed for parts in (stored, read) if path in parts]
        in_part = [_span(one) for one in places.fresh.values() if one.kind == "change" and not _is_whole(one, read)]
        for path, entry in self._others:
            known = _is_whole(entry, stored) and not entry.quarantined and places.file_order(path) is not None
            for span in (*in_part, *(() if known else changed)):
                if span.meets(entry.min_sequence, entry.max_sequence):
                    raise self._overlaps("changes of a key that share a place may be", path, entry)

    @property
    def _others(self) -> list[tuple[str, FileEntry]]:
        """Files with changes that landed at another time."""
        others = ((p, e) for p, e in sorted(self.known.items()) if p not in self.done and e.state == "committed")
        return [(path, entry) for path, entry in others if entry.min_sequence is not None]

    def _overlaps(self, what: str, path: str, entry: FileEntry) -> FatalError:
        remedy = f"choose a time with both: {path} was last modified at {entry.modified}"
        return _refused("RANGE_OVERLAPS", self.table, f"{what} with {path}, which landed at another time", remedy)


@dataclass(frozen=True, kw_only=True)
class SharedPlaces:
    """What a reload of a time changes in a table whose order lets several changes of a key share a place.

    Attributes:
        file_order: see `Dialect.file_order`.
        changed: files from which changes go, or come besides.
        fresh: the ledger's rows of the files that were read; `recorded`: what was kept of each.
    """

    file_order: Callable[[str], str | None]
    changed: Collection[str]
    fresh: Mapping[str, FileEntry]
    recorded: Iterable[RecordedFile]


@dataclass(frozen=True)
class _Stored:
    """What the change table has of a file, of all generations."""

    rows: int
    batches: frozenset[int]
    least: str | None
    greatest: str | None

    @property
    def one_batch(self) -> bool:
        return len(self.batches) == 1

    def meets(self, least: str | None, greatest: str | None) -> bool:
        """Whether sequences of two files may be equal."""
        if None in (self.least, self.greatest, least, greatest):
            return False
        mine, other = (sort_key(str(x)) for x in (self.least, self.greatest)), (str(least), str(greatest))
        low, high = mine
        return not (high < sort_key(other[0]) or sort_key(other[1]) < low)


def _is_whole(entry: FileEntry, stored: Mapping[str, _Stored]) -> bool:
    """Whether the change table has all changes of a file, none of them skipped as a re-delivery."""
    kept = stored.get(entry.path)
    is_exact = kept is not None and (kept.one_batch or entry.landed is not None)
    return kept is not None and is_exact and kept.rows == (entry.rows or 0) - entry.quarantined


def _span(entry: FileEntry) -> _Stored:
    return _Stored(rows=entry.rows or 0, batches=frozenset(), least=entry.min_sequence, greatest=entry.max_sequence)


def _stored(recorded: Iterable[RecordedFile]) -> dict[str, _Stored]:
    found: dict[str, list[RecordedFile]] = {}
    for one in recorded:
        found.setdefault(one.path, []).append(one)
    return {path: _of_file(parts) for path, parts in found.items()}


def _of_file(parts: Sequence[RecordedFile]) -> _Stored:
    least = [one.min_sequence for one in parts if one.min_sequence is not None]
    greatest = [one.max_sequence for one in parts if one.max_sequence is not None]
    return _Stored(
        rows=sum(one.rows for one in parts),
        batches=frozenset(number for one in parts for number in (one.batch, one.first_batch)),
        least=min(least, key=sort_key, default=None), greatest=max(greatest, key=sort_key, default=None),
    )  # fmt: skip


_WHOLE = "reload all files, without a time"
_TOTAL_ORDER = f"name a total order in `sequence_by`, or {_WHOLE}"


def require_ordered(schema: TableSchema, state: TableState, *, of_log: bool) -> None:
    """Require that the order of changes does not depend on the other files, so a range of files can be read again.

    Args:
        of_log: places in the source's log say the generations of changes.

    Raises:
        FatalError: `RANGE_UNORDERED`.
    """
    table = schema.spec.table
    if schema.spec.mode == "snapshots":
        what = "its files are snapshots, of which each is read as what differs from the one before it"
        raise _refused("RANGE_UNORDERED", table, what, _WHOLE)
    if schema.shared_places and not schema.keys:
        what = "it has no key, and equal rows that share a place in its order are several, or one that was sent again"
        raise _refused("RANGE_UNORDERED", table, what, _TOTAL_ORDER)
    if schema.one_change:
        what = "its source may send the changes of a transaction again, in the same file and at the same place"
        raise _refused("RANGE_UNORDERED", table, what, _TOTAL_ORDER)
    if of_log and state.generation > 1:
        what = "places in the source's log, not files, say to which full load changes belong"
        raise _refused("RANGE_UNORDERED", table, what, _WHOLE)


def _refused(code: str, table: str, what: str, remedy: str) -> FatalError:
    return FatalError(code, f"{table}: {what}; the tables are unchanged", remedy=remedy)


def seed(state: TableState, files: Collection[str]) -> TableState:
    """State that the ledger begins with into which files of a time are read: the table's, without what they gave it."""
    return replace(
        state, batch=1, cursor=None, oldest=None, listed_in_full_at=None, delta_versions={}, foreign=(), rows=0,
        held=None, held_truncate=None, applied=None, baseline=None, openings=(), log_time=None,
        truncates=tuple(one for one in state.truncates if one.source_file not in files),
    )  # fmt: skip


def state_after(before: TableState, fresh: TableState, batch_id: str) -> TableState:
    """The table's state once the files are read again: what they may have changed of it.

    Args:
        fresh: of the ledger into which they were read, see `seed`. A truncate that was known stays when it came, also
            where another file is the first now that has it.
    """
    times = [text for text in (before.max_commit_ts, fresh.max_commit_ts) if text is not None]
    logs = [text for text in (before.log_time, fresh.log_time) if text is not None]
    known = {(one.generation, one.sequence): one for one in before.truncates}
    truncates = tuple(
        replace(known.get((one.generation, one.sequence), replace(one, batch_id=batch_id)), source_file=one.source_file)
        for one in fresh.truncates
    )
    return replace(
        before, schemas=fresh.schemas, found=fresh.found, sequence_type=fresh.sequence_type,
        sequence_forms=fresh.sequence_forms,
        max_sequence=greater(before.max_sequence, fresh.max_sequence), max_commit_ts=max(times, default=None),
        log_time=max(logs, default=None), truncates=truncates,
    )  # fmt: skip
