"""What waits: files that are new, changed or late."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.codes import OPTION_INVALID
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.file_names import FIRST_OF_LOAD
from airflow_gddl.contract.spec import Generations, JobOptions
from spark_jobs.plan.generations import CERTAIN, Inference, generation_at, infer
from spark_jobs.plan.planned_batch import (
    BatchPlan,
    FileEntry,
    LandedFile,
    PlannedFile,
    TableState,
)

Fingerprint = Callable[[LandedFile, FileEntry | None], str]


@dataclass(frozen=True, kw_only=True)
class NotListed:
    """What a listing left out: days of change files, and when they were last listed (ISO 8601 UTC)."""

    days: int
    since: str | None


@dataclass(frozen=True, kw_only=True)
class Overtaken:
    """A reload that came after changes were ingested that had been written after it.

    Attributes:
        changes: how many change files; `change`: one of them.
        load: one of the reload's files.
    """

    changes: int
    change: str
    load: str


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What one listing found.

    Attributes:
        waiting: files to ingest in the order to ingest them; input of `next_batch`.
        touched: path to (fingerprint, etag now) where only the etag changed, not the content.
        taken_as_touched: load files among them of which nothing tells that: they have the same size, and another tag.
        missing: paths that the ledger knows, within what was listed, but that no longer exist.
        folder_missing: there is no landing folder (on S3: nothing below it).
        root_missing: nor the landing root, as where a file system is not mounted; never on S3, which has no folders.
        folders_there: where there is none, landing folders with names like it, or a few others; relative to the root.
        ignored: how many files have a name that no rule knows; hidden and temporary ones don't count.
        ignored_sample: a few of them, relative.
        refused: how many must not be read: links that leave the landing root, names that aren't UTF-8.
        refused_sample: a few of them, relative, each with the reason.
        listed_in_full_at: ISO 8601 UTC when this was a full listing that the ledger is to be given, else null.
        not_listed: null when nothing was left out.
        listed: objects that the store returned, the cost of the listing.
        unsettled: new files that are still being written, or may be; they are left for a later listing.
        older_loads: load files whose rows belong, or will, to an older generation than the newest.
        unreadable_loads: load files that are there, wait for nothing and could not be read.
        unreadable_changes: the same of change files that a batch has met since the newest snapshot of the source began.
        inference: what was inferred of generations, where nothing has been ingested yet.
        openings: see `TableState.openings`.
        held: files that wait for a user's release of a truncate in the first of them; they are not in `waiting`.
        unread_loads: load files that a batch of this run could not read: nothing waits for this run any more.
        begun_loads: load files that open a generation, since all files that were ingested before them are gone.
        unplaced_loads: those of them of a table without keys that may as well be the rest of the load before.
        late_loads: load files under new names that continue a load whose changes were ingested.
        reloaded_at: when the earliest file of a reload that waits was last modified; empty: none waits.
        overtaken: by changes that were ingested, a reload that waits; None: none was.
    """

    waiting: tuple[PlannedFile, ...] = ()
    touched: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    taken_as_touched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    folder_missing: bool = False
    root_missing: bool = False
    folders_there: tuple[str, ...] = ()
    ignored: int = 0
    ignored_sample: tuple[str, ...] = ()
    refused: int = 0
    refused_sample: tuple[str, ...] = ()
    listed_in_full_at: str | None = None
    not_listed: NotListed | None = None
    listed: int = 0
    unsettled: tuple[str, ...] = ()
    older_loads: tuple[str, ...] = ()
    unreadable_loads: tuple[str, ...] = ()
    unreadable_changes: tuple[str, ...] = ()
    inference: Inference = CERTAIN
    openings: tuple[str, ...] = ()
    held: tuple[PlannedFile, ...] = ()
    unread_loads: tuple[str, ...] = ()
    begun_loads: tuple[str, ...] = ()
    unplaced_loads: tuple[str, ...] = ()
    late_loads: tuple[str, ...] = ()
    reloaded_at: str = ""
    overtaken: Overtaken | None = None

    def held_from(self, path: str) -> Discovery:
        """What waits before a file with a truncate: it and all after it are held, and the next listing is full."""
        at = next((at for at, file in enumerate(self.waiting) if file.path == path), len(self.waiting))
        held = self.waiting[at:]
        if not held:
            return self
        return replace(self, waiting=self.waiting[:at], held=(*held, *self.held), listed_in_full_at=None)

    def without_yet(self, paths: Collection[str], *, all_after: bool) -> Discovery:
        """What waits before these files, which are held until there is a table; or, unless all after them are, too, but
        for them.
        """
        if all_after:
            return self.held_from(next(file.path for file in self.waiting if file.path in paths))
        held = tuple(file for file in self.waiting if file.path in paths)
        waiting = tuple(file for file in self.waiting if file.path not in paths)
        return replace(self, waiting=waiting, held=(*self.held, *held), listed_in_full_at=None)

    def with_held(self) -> Discovery:
        """What is held waits again, after all others: the ledger can keep now what holds it."""
        return replace(self, waiting=(*self.waiting, *self.held), held=())

    def with_last(self, files: Sequence[PlannedFile], paths: Collection[str]) -> Discovery:
        """Files of a batch that was not made wait again; those of these paths after all others."""
        last = tuple(file for file in files if file.path in paths)
        return replace(self, waiting=(*(f for f in files if f.path not in paths), *self.waiting, *last))

    def without(self, plan: BatchPlan) -> Discovery:
        """What still waits once `plan` is committed.

        A plan of an earlier run may hold an older version of a file that waits: the next listing finds that again, so
        this one no longer counts as full.
        """
        done = {file.path: file.etag for file in plan.files}
        stale = any(done.get(file.path, file.etag) != file.etag for file in self.waiting)
        return replace(
            self,
            waiting=tuple(file for file in self.waiting if file.path not in done),
            listed_in_full_at=None if stale else self.listed_in_full_at,
        )

    def with_unreadable(self, files: Collection[PlannedFile]) -> Discovery:
        """What still waits once a batch could not read these files: nothing, if one is of a full load."""
        if loads := tuple(file.path for file in files if file.kind == "load"):
            return replace(self, waiting=(), listed_in_full_at=None, unread_loads=loads)
        changes = tuple(file.path for file in files if file.kind == "change")
        return replace(self, unreadable_changes=(*self.unreadable_changes, *changes)) if changes else self


def with_begun(
    listing: Sequence[LandedFile], known: Mapping[str, FileEntry], state: TableState
) -> Sequence[LandedFile]:
    """Mark load files that begin a full load: the CDC service has removed all files of the table before it.

    That is so where changes of the current generation were ingested, all its files that were ingested are gone or are
    loads that were written again, and the load file is not older than these changes. One with the content that it had
    begins one only if it has no rows: a copy of a load that had some would bring back rows that were deleted since.
    Without keys it is so also where no changes were: rows of two loads would be there beside each other.

    Args:
        known: newest ledger row of every path within the listed range, of which none was left out.
    """
    current = [row for row in known.values() if row.generation == state.generation and row.state == "committed"]
    newest = max((row.modified for row in current if row.kind == "change"), default=None)
    there = {file.path: file for file in listing}
    if newest is None and not (state.keys == () and current and not any(row.path in there for row in current)):
        return listing
    if any(row.kind == "change" and row.path in there for row in current):
        return listing
    if any(row.path in there and row.etag == there[row.path].etag for row in current):
        return listing
    since = newest or ""
    return [replace(f, begins=True) if f.kind == "load" and f.modified >= since else f for f in listing]


def find(
    listing: Iterable[LandedFile],
    known: Mapping[str, FileEntry],
    state: TableState,
    fingerprint: Fingerprint,
    generations: Generations = "auto",
    *,
    unread: Collection[str] | None = (),
) -> Discovery:
    """Compare landed files with ingested ones (docs/semantics.md, section 2).

    Args:
        known: newest ledger row of every path within the listed range; other paths would be reported missing.
        fingerprint: asked only of new files and of those whose etag changed, with their row: that of the row where the
            content is what it was; raises FileNotFoundError for a file that was removed since the listing, which then
            counts as not listed.
        generations: what the row says of a folder of which nothing was ingested.
        unread: files that wait again, also unchanged, if they could not be read; None: all.
    """
    compared = {
        file.path: _compare(file, known.get(file.path), fingerprint, unread=unread is None or file.path in unread)
        for file in listing
    }
    comparisons = [item for item in compared.values() if item is not None]
    waiting, opening, copied = _chosen(comparisons, state)
    paths = {item.file.path for item in waiting}
    inference = infer((item.file for item in waiting), generations) if state.generation == 0 else CERTAIN
    openings = state.openings or inference.openings
    resting = [item for item in comparisons if item.file.kind == "load" and item.file.path not in paths]
    reload = _Reload.of(opening, known, state)
    planned = tuple(_in_order(waiting, reload, openings))
    return Discovery(
        waiting=planned,
        touched={
            item.file.path: (item.fingerprint, item.file.etag)
            for item in comparisons
            if item.touched_only and item.file.path not in paths
        },
        missing=tuple(sorted(known.keys() - {path for path, item in compared.items() if item is not None})),
        older_loads=_older_loads(resting, planned, state),
        unreadable_loads=tuple(item.file.path for item in resting if not item.was_read),
        unreadable_changes=tuple(_unreadable_since_snapshot(comparisons, paths, state)),
        inference=inference,
        openings=openings,
        begun_loads=tuple(item.file.path for item in opening if item.begins and not copied),
        unplaced_loads=_unplaced(opening, state),
        reloaded_at=reload.since if opening else "",
        late_loads=() if opening else tuple(_late_loads(waiting, known, state)),
    )


def _chosen(comparisons: Sequence[_Compared], state: TableState) -> tuple[list[_Compared], list[_Compared], bool]:
    """Files that wait, those that open a generation, and whether a file is a copy of one that was read."""
    copied = any(item.is_copy(state.generation) for item in comparisons)
    opening = [item for item in comparisons if item.opens(state, copied=copied)]
    is_over = copied and not opening and state.generation <= max(state.swept, 1)
    waiting = [
        item for item in comparisons
        if item.waits(state.generation, opens=bool(opening), joins=not is_over, begins=not copied)
    ]  # fmt: skip
    return waiting, opening, copied


def _older_loads(resting: Iterable[_Compared], planned: Collection[PlannedFile], state: TableState) -> tuple[str, ...]:
    """See `Discovery.older_loads`."""
    newest = max([state.generation, *(file.generation for file in planned)])
    read = (item.file.path for item in resting if item.was_read and item.generation < newest)
    return (*read, *(file.path for file in planned if file.kind == "load" and file.generation < newest))


def with_overtaken(discovery: Discovery, rows: Iterable[FileEntry], generation: int) -> Discovery:
    """Say whether a reload that waits came later than change files that were written after it.

    These are of its generation, but were ingested as of the one before.

    Args:
        rows: of the ledger; `generation`: the current one.
    """
    loads = [file for file in discovery.waiting if file.kind == "load" and file.generation > generation]
    if not discovery.reloaded_at or not loads:
        return discovery
    changes = (row for row in rows if row.kind == "change" and row.state == "committed")
    later = [row.path for row in changes if row.generation == generation and row.modified > discovery.reloaded_at]
    overtaken = Overtaken(changes=len(later), change=min(later), load=loads[0].path) if later else None
    return replace(discovery, overtaken=overtaken)


def _late_loads(waiting: Iterable[_Compared], known: Mapping[str, FileEntry], state: TableState) -> Iterator[str]:
    """Load files under new names, where changes of their generation were ingested: they may be a load of their own.

    So may those under names of older generations, where theirs has no load yet, since it began with a missing folder.
    A load by `gddl load` says itself where it begins, and those older than the newest change are of the load before.
    """
    own = [row for row in known.values() if row.kind == "load" and row.generation >= state.generation]
    loads = [item for item in waiting if item.file.kind == "load" and (item.known is None or not own)]
    names = {path.rpartition("/")[2] for path in (*known, *(item.file.path for item in loads))}
    if not _has_changes(state) or FIRST_OF_LOAD in names:
        return
    for item in loads:
        if item.file.modified > (state.max_commit_ts or ""):
            yield item.file.path


def _has_changes(state: TableState) -> bool:
    """Whether changes of the current generation were ingested."""
    return state.max_sequence not in (None, state.floors[-1].sequence if state.floors else None)


def _unplaced(opening: Sequence[_Compared], state: TableState) -> tuple[str, ...]:
    """Load files under new names where nothing but a load was ingested, whose files are gone."""
    begun = tuple(item.file.path for item in opening if item.begins)
    is_told = _has_changes(state) or any(path.rpartition("/")[2] == FIRST_OF_LOAD for path in begun)
    return () if is_told else begun


def _unreadable_since_snapshot(
    comparisons: Iterable[_Compared], waiting: Collection[str], state: TableState
) -> Iterator[str]:
    runs = () if state.snapshots is None else state.snapshots.runs
    for item in comparisons if runs else ():
        known = item.known
        unread = known is not None and not item.was_read and known.batch >= runs[-1].batch
        if unread and item.file.kind == "change" and item.file.path not in waiting:
            yield item.file.path


@dataclass(frozen=True)
class _Compared:
    """A listed file, its ledger row, and whether its content is new."""

    file: LandedFile
    known: FileEntry | None
    fingerprint: str
    unread: bool = False

    @cached_property
    def changed(self) -> bool:
        """Whether there is content to read: new, or, with `unread`, what could not be read before."""
        if self.known is None or self.known.fingerprint != self.fingerprint:
            return True
        return self.unread and not self.was_read

    @cached_property
    def touched_only(self) -> bool:
        return self.known is not None and not self.changed and self.known.etag != self.file.etag

    @cached_property
    def was_read(self) -> bool:
        return self.known is not None and self.known.state == "committed"

    @property
    def generation(self) -> int:
        """As its row says; 0 without one."""
        return 0 if self.known is None else self.known.generation

    @cached_property
    def begins(self) -> bool:
        """See `with_begun`; not where a file of the load is there, see `is_copy`."""
        return self.file.begins and (self.changed or (self.known is not None and self.known.rows == 0))

    def is_copy(self, generation: int) -> bool:
        """Whether a load file with rows of the current full load was copied in place: it was not loaded again."""
        is_load = self.file.kind == "load" and self.known is not None and bool(self.known.rows)
        return is_load and self.touched_only and self.was_read and self.generation == generation

    def opens(self, state: TableState, *, copied: bool) -> bool:
        """A load of the current generation with new content. An unreadable one never was part of it: it continues.

        So does one that begins a load; and without keys the first file of a load that follows changes: rows of these
        are in the load, too.
        """
        known = self.known
        if self.begins and not copied:
            return True
        if known is None:
            follows = state.keys == () and state.generation > 0
            return follows and self.file.path.rpartition("/")[2] == FIRST_OF_LOAD
        return (
            self.file.kind == "load"
            and (known.state == "committed" or known.reopens)
            and known.generation == state.generation
            and self.changed
        )

    @property
    def opened_at(self) -> str:
        """When it began a full load: with a version that could not be read all changes since then wait."""
        known = self.known
        return known.modified if known is not None and known.reopens else self.file.modified

    def waits(self, generation: int, *, opens: bool, joins: bool, begins: bool) -> bool:
        """New content; or a load written again with the content it had, as part of a newer full load than its row's:
        left out, its rows would be swept with the older generation.

        Args:
            joins: false: the newest full load is whole, and its files were copied in place with this one.
            begins: false: files of the current full load are there.
        """
        if self.known is None or self.changed or (self.begins and begins):
            return True
        written_again = self.known.modified != self.file.modified
        current = generation + 1 if opens else generation
        return (
            self.file.kind == "load"
            and joins
            and written_again
            and self.known.state == "committed"
            and self.known.generation < current
        )


def _compare(file: LandedFile, known: FileEntry | None, fingerprint: Fingerprint, *, unread: bool) -> _Compared | None:
    if known is not None and known.etag == file.etag:
        return _Compared(file, known, known.fingerprint, unread)
    try:
        return _Compared(file, known, fingerprint(file, known), unread)
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class _Reload:
    """The newest reload of a table: one that waits, or else the one that has opened the current generation.

    Attributes:
        generation: that it opens, or has opened; 1: there was none.
        since: when the earliest of its load files was last modified; empty: no load file has opened it.
    """

    generation: int
    since: str

    @classmethod
    def of(cls, opening: Sequence[_Compared], known: Mapping[str, FileEntry], state: TableState) -> _Reload:
        if opening:
            return cls(state.generation + 1, min(item.opened_at for item in opening))
        rows = (row for row in known.values() if row.state == "committed" and row.generation == state.generation > 1)
        since = min((row.modified for row in rows if row.kind == "load"), default="")
        return cls(max(state.generation, 1), since)


def _in_order(waiting: list[_Compared], reload: _Reload, openings: Sequence[str]) -> Iterator[PlannedFile]:
    """By generation, load files of each first.

    Args:
        openings: see `TableState.openings`.
    """

    def generation(file: LandedFile) -> int:
        if openings:
            return generation_at(file.modified, openings)
        # Changes from before a reload stay in the generation that it ends: after it they would undo newer rows.
        return reload.generation - (file.kind == "change" and file.modified < reload.since)

    def place(planned: tuple[int, _Compared]) -> tuple[int, bool, tuple[str, ...], str]:
        number, file = planned[0], planned[1].file
        return number, file.kind != "load", file.order, file.modified

    for number, item in sorted(((generation(item.file), item) for item in waiting), key=place):
        file = item.file
        yield PlannedFile(
            path=file.path, kind=file.kind, format=file.format, size=file.size, etag=file.etag, modified=file.modified,
            fingerprint=item.fingerprint, generation=number,
            corrects=file.kind == "change" and item.was_read and item.changed,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LandingRange:
    """Times of last modification: from `since` on, before `until`; ISO 8601 with a zone, None: open."""

    since: str | None = None
    until: str | None = None

    @classmethod
    def of(cls, options: JobOptions) -> LandingRange | None:
        """The time of the job's reload; None: it has none, or the job does not reload.

        Raises:
            FatalError: `OPTION_INVALID`.
        """
        reload = options.load
        if not isinstance(reload, Reload) or not (reload.landed_since or reload.landed_until):
            return None
        since, until = _moment("landed_since", reload.landed_since), _moment("landed_until", reload.landed_until)
        if since and until and moment_of(since) >= moment_of(until):
            what = f"a reload of a time from {since} to {until}"
            raise FatalError(OPTION_INVALID, what, remedy="let the time end after it begins")
        return cls(since=since, until=until)

    def holds(self, modified: str) -> bool:
        moment = moment_of(modified)
        return (self.since is None or moment >= moment_of(self.since)) and (
            self.until is None or moment < moment_of(self.until)
        )

    def __str__(self) -> str:
        return f"from {self.since or 'the first file'} to {self.until or 'the last'}"


def _moment(name: str, text: str | None) -> str | None:
    try:
        return moment_of(text).isoformat() if text else None
    except ValueError as error:
        remedy = "write ISO 8601, e.g. 2026-01-31T00:00:00Z"
        raise FatalError(OPTION_INVALID, f"{name} {text!r} is not a moment", remedy=remedy) from error
