"""Snapshots that a connector takes of a table it already captures: generations by places in the source's log; pure.

A snapshot is the whole table at one place in the log. Changes before that place belong to the generations before it,
whenever they come; rows that only these have are gone at the source. See docs/semantics.md, section 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from spark_jobs.plan.sequence import COMMIT_AND_PLACE, LONGEST_TRANSACTION

_COMMIT_AND_PLACE = re.compile(COMMIT_AND_PLACE)
T = TypeVar("T")
MOST_NAMED = 64
"""Names that the ledger keeps of each kind; a table with more collections has no snapshot that is known to be whole."""

IgnoredSnapshot = Literal["late", "sources"]


@dataclass(frozen=True, kw_only=True)
class SnapshotPart:
    """Rows of one snapshot in one file.

    Attributes:
        position: their place in the source's log.
        since: earliest commit time, ISO 8601 UTC; None: unknown.
        finished: collections whose last row is among them.
        whole: the last row of the whole snapshot is among them.
    """

    position: str
    since: str | None = None
    finished: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class FirstChange:
    """The earliest of some changes in the source's log, which are no rows of a snapshot.

    Attributes:
        committed_at: ISO 8601 UTC, of changes whose places are those of `is_alone`: their time decides, too. None: the
            place alone decides.
    """

    position: str
    committed_at: str | None = None

    def precedes(self, part: SnapshotPart) -> bool:
        """Whether the change was made before a snapshot, as `rules.order.generations` decides it."""
        is_later = None not in (self.committed_at, part.since) and str(self.committed_at) >= str(part.since)
        return self.position < part.position and not is_later


@dataclass(frozen=True, kw_only=True)
class LogServer:
    """Changes that were made on one server of MySQL and have come in one partition of the topic.

    Attributes:
        name: its `server_id`; empty: events don't name it.
        low, high: the first and the last of their places in the log, see `sequence.place_in_log`.
        since, until: earliest and latest commit time, ISO 8601 UTC.
        partition: empty: of the topic's only one, or it is not known.
        from_file, to_file: the first and the last file with some, as `file_order` says; empty: not known.
        behind: of a file, the greatest place before the first of them, if that is lower; empty: it is not.
    """

    name: str
    low: str
    high: str
    since: str
    until: str
    partition: str = ""
    from_file: str = ""
    to_file: str = ""
    behind: str = ""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Events of one table of the source that one connector has sent.

    Attributes:
        connector: its `source.name`.
        since, until: earliest and latest commit time of its changes, ISO 8601 UTC; None: it has no change.
        mixed: in a file events of another connector are between those of this one.
    """

    table: str
    connector: str
    since: str | None = None
    until: str | None = None
    mixed: bool = False

    def is_beside(self, other: Stream) -> bool:
        """Whether both connectors sent events at the same time, so that none of them took over from the other."""
        if self.mixed and other.mixed:
            return True
        if None in (self.since, self.until, other.since, other.until):
            return False
        since, until = max(str(self.since), str(other.since)), min(str(self.until), str(other.until))
        return datetime.fromisoformat(until) - datetime.fromisoformat(since) > LONGEST_TRANSACTION


@dataclass(frozen=True, kw_only=True)
class EventOrigins:
    """Where events come from.

    Attributes:
        sources: names of the connectors; `collections`: tables of the source; `partitions`: of the topic.
        id_types: of the keys of documents, see `documents.id_type`; `shards`: of MongoDB, where events name them.
        servers: of MySQL, on which the changes were made; `streams`: of each table and connector.
        firsts: the earliest changes that are no rows of a snapshot, see `earliest`.
    """

    sources: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    id_types: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()
    servers: tuple[LogServer, ...] = ()
    streams: tuple[Stream, ...] = ()
    firsts: tuple[FirstChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SnapshotMarks(EventOrigins):
    """What the events of one file say of snapshots, and of where they come from."""

    parts: tuple[SnapshotPart, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SnapshotRun(SnapshotPart):
    """A snapshot that the table knows.

    Attributes:
        generation: its rows belong to it.
        opens: it has opened that generation; false for the first snapshot of a table.
        batch: the first one with rows of it.
        continued_at: when the newest batch with rows of it was planned, ISO 8601 UTC.
    """

    generation: int
    opens: bool = True
    batch: int = 0
    continued_at: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownSnapshots(EventOrigins):
    """What the ledger knows of a table's snapshots, oldest first, and of where its events come from.

    Attributes:
        merged: snapshots were merged, so that nothing is known of them.
    """

    runs: tuple[SnapshotRun, ...] = ()
    merged: bool = False

    @property
    def openings(self) -> tuple[SnapshotRun, ...]:
        """Those that have opened a generation."""
        return tuple(run for run in self.runs if run.opens)

    def run_of(self, generation: int) -> SnapshotRun | None:
        """The snapshot that has opened a generation; None: a full load or a missing folder did."""
        return next((run for run in self.openings if run.generation == generation), None)


@dataclass(frozen=True, kw_only=True)
class LedgerBefore:
    """What the ledger says before a batch.

    Attributes:
        known: None: the table has no changes yet.
        generation: current one; 0: none yet.
        max_sequence: JSON text of the greatest sequence ingested; None: none.
    """

    known: KnownSnapshots | None
    generation: int
    max_sequence: str | None


def snapshots_after(
    before: LedgerBefore, marks: Iterable[SnapshotMarks], *, batch: int, planned_at: str
) -> tuple[KnownSnapshots, tuple[IgnoredSnapshot, ...]]:
    """The snapshots known after a batch, and why others that are new open no generation.

    The first snapshot of a table opens none, unless changes before it are known, of its own batch or of earlier ones. A
    later one does where no change at or after its place has been ingested, for that change would count as one of the
    generation before, and where all events come from one connector, whose snapshot it is.
    """
    marks = tuple(marks)
    known = before.known or KnownSnapshots()
    known = _with_origins(known, (known, *marks))
    ignored: list[IgnoredSnapshot] = []
    for part in _together(part for mark in marks for part in mark.parts):
        known, why = _with_part(known, part, before, batch, planned_at)
        ignored += [] if why is None else [why]
    return known, tuple(dict.fromkeys(ignored))


def with_names_of(known: KnownSnapshots, other: KnownSnapshots) -> KnownSnapshots:
    """With all names of another, whose snapshots are not followed."""
    return replace(_with_origins(known, (other, known)), firsts=known.firsts)


def _with_origins(known: KnownSnapshots, every: Sequence[EventOrigins]) -> KnownSnapshots:
    def of_all(name: str) -> list[Any]:
        return [item for one in every for item in getattr(one, name)]

    names: dict[str, Any] = {
        name: _named((), of_all(name)) for name in ("sources", "collections", "partitions", "id_types", "shards")
    }
    servers, streams, firsts = servers_of(of_all("servers")), streams_of(of_all("streams")), earliest(of_all("firsts"))
    return replace(known, **names, servers=servers, streams=streams, firsts=firsts)


def earliest(changes: Iterable[FirstChange]) -> tuple[FirstChange, ...]:
    """The earliest change by its place, and the earliest of those whose time decides, too: each where there is one."""
    changes = tuple(changes)
    placed = [one.position for one in changes if one.committed_at is None]
    timed = [(one.position, one.committed_at) for one in changes if one.committed_at is not None]
    found = [FirstChange(position=min(placed))] if placed else []
    if timed:
        found.append(FirstChange(position=min(at for at, _ in timed), committed_at=min(time for _, time in timed)))
    return tuple(found)


def servers_of(parts: Iterable[LogServer]) -> tuple[LogServer, ...]:
    """Each server with all of its changes in each partition."""
    found: dict[tuple[str, str], LogServer] = {}
    for part in parts:
        other = found.get((part.partition, part.name), part)
        found[part.partition, part.name] = replace(
            part, low=min(part.low, other.low), high=max(part.high, other.high), behind="",
            since=min(part.since, other.since), until=max(part.until, other.until),
            from_file=min(part.from_file, other.from_file), to_file=max(part.to_file, other.to_file),
        )  # fmt: skip
    return tuple(found.values())[:MOST_NAMED]


def streams_of(parts: Iterable[Stream]) -> tuple[Stream, ...]:
    """Each table's events of each connector as one."""
    found: dict[tuple[str, str], Stream] = {}
    for part in parts:
        other = found.get((part.table, part.connector), part)
        found[part.table, part.connector] = replace(
            part, mixed=part.mixed or other.mixed,
            since=min(filter(None, (part.since, other.since)), default=None),
            until=max(filter(None, (part.until, other.until)), default=None),
        )  # fmt: skip
    return tuple(found.values())[:MOST_NAMED]


def is_alone(position: str) -> bool:
    """Whether a place has no commit before it, and has its own in its place: PostgreSQL's first transaction."""
    match = _COMMIT_AND_PLACE.match(position)
    return match is not None and match["commit"] == match["own"]


def generation_after(known: KnownSnapshots | None, generation: int) -> int:
    """The current generation once these snapshots are known."""
    return max([generation, *(run.generation for run in known.openings)]) if known else generation


def is_whole(known: KnownSnapshots, run: SnapshotRun, max_sequence: str | None) -> bool:
    """Whether all rows of a snapshot have come, as far as events tell: its end, that of each collection, or a change
    after it, for the connector streams only once its snapshot is done.
    """
    if run.whole or (text_of(max_sequence) or "") > run.position:
        return True
    every = known.collections
    return 0 < len(every) < MOST_NAMED and set(every) <= set(run.finished)


def text_of(sequence: str | None) -> str | None:
    """A sequence of one column of text, out of its JSON; None: it is none."""
    value = json.loads(sequence) if sequence else None
    return value if isinstance(value, str) else None


def _with_part(
    known: KnownSnapshots, part: SnapshotPart, before: LedgerBefore, batch: int, planned_at: str
) -> tuple[KnownSnapshots, IgnoredSnapshot | None]:
    same = next((run for run in known.runs if run.position == part.position), None)
    if same is not None:
        return _continued(known, same, part, planned_at), None
    newest = known.runs[-1] if known.runs else None
    if newest is not None and part.position < newest.position:
        return known, None
    generation = max([before.generation, 1, *(run.generation for run in known.runs)])
    run = SnapshotRun(**vars(part), generation=generation, opens=False, batch=batch, continued_at=planned_at)
    is_behind = (text_of(before.max_sequence) or "") < part.position
    are_known = before.max_sequence is None or before.known is not None
    if newest is None and are_known and not any(first.precedes(part) for first in known.firsts):
        return replace(known, runs=(*known.runs, run)), None
    if not is_behind:
        return known, "late" if before.known is not None else None
    if len(known.sources) > 1:
        return known, "sources"
    return replace(known, runs=(*known.runs, replace(run, generation=generation + 1, opens=True))), None


def _continued(known: KnownSnapshots, run: SnapshotRun, part: SnapshotPart, planned_at: str) -> KnownSnapshots:
    more = replace(
        run, continued_at=planned_at, finished=_named(run.finished, part.finished), whole=run.whole or part.whole
    )
    return replace(known, runs=tuple(more if one is run else one for one in known.runs))


def _together(parts: Iterable[SnapshotPart]) -> Sequence[SnapshotPart]:
    """Parts of each snapshot as one, in the order of the log."""
    by_position: dict[str, SnapshotPart] = {}
    for part in parts:
        other = by_position.get(part.position, part)
        by_position[part.position] = replace(
            part,
            since=min(filter(None, (part.since, other.since)), default=None),
            finished=_named(other.finished, part.finished),
            whole=part.whole or other.whole,
        )
    return [by_position[position] for position in sorted(by_position)]


def _named(known: Sequence[T], more: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*known, *more)))[:MOST_NAMED]
