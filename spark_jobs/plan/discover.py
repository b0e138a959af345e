"""A listing against the ledger: which files wait, in what order, for which generation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.spec import Generations
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.files import FileEntry, LandedFile, PlannedFile
from spark_jobs.plan.generations import CERTAIN, Inference, generation_at, infer

Fingerprint = Callable[[LandedFile], str]


@dataclass(frozen=True, kw_only=True)
class NotListed:
    """What a listing left out: days of change files, and when they were last listed (ISO 8601 UTC)."""

    days: int
    since: str | None


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What one listing found.

    Attributes:
        waiting: files to ingest in the order to ingest them; input of `batching.next_batch`.
        touched: path to (fingerprint, etag now) where only the etag changed, not the content.
        missing: paths that the ledger knows, within what was listed, but that no longer exist.
        folder_missing: there is no landing folder (on S3: nothing below it).
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
    """

    waiting: tuple[PlannedFile, ...] = ()
    touched: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    folder_missing: bool = False
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

    def with_unreadable(self, files: Iterable[PlannedFile]) -> Discovery:
        """What still waits once a batch could not read these files."""
        changes = tuple(file.path for file in files if file.kind == "change")
        return replace(self, unreadable_changes=(*self.unreadable_changes, *changes)) if changes else self


def find(
    listing: Iterable[LandedFile],
    known: Mapping[str, FileEntry],
    state: TableState,
    fingerprint: Fingerprint,
    generations: Generations = "auto",
) -> Discovery:
    """Compare landed files with ingested ones (docs/semantics.md, section 2).

    Args:
        known: newest ledger row of every path within the listed range; other paths would be reported missing.
        fingerprint: asked only of new files and of those whose etag changed; raises FileNotFoundError for a file that
            was removed since the listing, which then counts as not listed.
        generations: what the row says of a folder of which nothing was ingested.
    """
    compared = {file.path: _compare(file, known.get(file.path), fingerprint) for file in listing}
    found = [item for item in compared.values() if item is not None]
    opening = [item for item in found if item.opens(state.generation)]
    waiting = [item for item in found if item.waits(state.generation, opens=bool(opening))]
    paths = {item.file.path for item in waiting}
    inference = infer((item.file for item in waiting), generations) if state.generation == 0 else CERTAIN
    openings = state.openings or inference.openings
    resting = [item for item in found if item.file.kind == "load" and item.file.path not in paths]
    planned = tuple(_in_order(waiting, opening, state, openings))
    newest = max([state.generation, *(file.generation for file in planned)])
    older = [item.file.path for item in resting if item.was_read and item.generation < newest]
    return Discovery(
        waiting=planned,
        touched={
            item.file.path: (item.fingerprint, item.file.etag)
            for item in found
            if item.touched_only and item.file.path not in paths
        },
        missing=tuple(sorted(known.keys() - {path for path, item in compared.items() if item is not None})),
        older_loads=(*older, *(file.path for file in planned if file.kind == "load" and file.generation < newest)),
        unreadable_loads=tuple(item.file.path for item in resting if not item.was_read),
        unreadable_changes=tuple(_unreadable_since_snapshot(found, paths, state)),
        inference=inference,
        openings=openings,
    )


def _unreadable_since_snapshot(
    found: Iterable[_Compared], waiting: Collection[str], state: TableState
) -> Iterator[str]:
    runs = () if state.snapshots is None else state.snapshots.runs
    for item in found if runs else ():
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

    @property
    def changed(self) -> bool:
        return self.known is None or self.known.fingerprint != self.fingerprint

    @property
    def touched_only(self) -> bool:
        return self.known is not None and not self.changed and self.known.etag != self.file.etag

    @property
    def was_read(self) -> bool:
        return self.known is not None and self.known.state == "committed"

    @property
    def generation(self) -> int:
        """As its row says; 0 without one."""
        return 0 if self.known is None else self.known.generation

    def opens(self, generation: int) -> bool:
        """A load of the current generation with new content. An unreadable one never was part of it: it continues."""
        known = self.known
        return (
            known is not None
            and self.file.kind == "load"
            and (known.state == "committed" or known.reopens)
            and known.generation == generation
            and self.changed
        )

    def waits(self, generation: int, *, opens: bool) -> bool:
        """New content; or a load written again with the content it had, as part of a newer full load than its row's:
        left out, its rows would be swept with the older generation.
        """
        if self.known is None or self.changed:
            return True
        written_again = self.known.modified != self.file.modified
        current = generation + 1 if opens else generation
        return (
            self.file.kind == "load"
            and written_again
            and self.known.state == "committed"
            and self.known.generation < current
        )


def _compare(file: LandedFile, known: FileEntry | None, fingerprint: Fingerprint) -> _Compared | None:
    if known is not None and known.etag == file.etag:
        return _Compared(file, known, known.fingerprint)
    try:
        return _Compared(file, known, fingerprint(file))
    except FileNotFoundError:
        return None


def _in_order(
    waiting: list[_Compared], opening: list[_Compared], state: TableState, openings: Sequence[str]
) -> Iterator[PlannedFile]:
    """By generation, load files of each first.

    Changes written before a reload stay in the generation that it ends: after it they would undo newer rows.
    """
    current = state.generation + 1 if opening else max(state.generation, 1)
    since = min((item.file.modified for item in opening), default="")

    def generation(file: LandedFile) -> int:
        if openings:
            return generation_at(file.modified, openings)
        return state.generation if file.kind == "change" and file.modified < since else current

    planned = [(generation(item.file), item) for item in waiting]
    for number, item in sorted(planned, key=lambda p: (p[0], p[1].file.kind != "load", p[1].file.order)):
        yield _planned(item, number)


def _planned(item: _Compared, generation: int) -> PlannedFile:
    file = item.file
    return PlannedFile(
        path=file.path,
        kind=file.kind,
        format=file.format,
        size=file.size,
        etag=file.etag,
        modified=file.modified,
        fingerprint=item.fingerprint,
        generation=generation,
        corrects=file.kind == "change" and item.was_read and item.changed,
    )
