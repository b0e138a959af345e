"""Sources with a log: changes that come before known ones in it, though they were committed later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby

from airflow_gddl.contract.codes import SOURCE_LOG_RESTARTED
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import (
    TableState,
)
from spark_jobs.plan.sequence import (
    LONGEST_TRANSACTION,
    is_in_file,
    log_place,
    longest_transaction,
)
from spark_jobs.plan.sharding import rebuild_of
from spark_jobs.plan.source_snapshots import LogServer, servers_of
from spark_jobs.rules.figures import DecodedBatch, Figures, FileFigures, LogRestart


def require_one_log(spec: TableSpec, decoded: DecodedBatch, state: TableState, servers: Sequence[LogServer]) -> None:
    """Refuse changes that were made after all known ones, but precede them in the source's log.

    A file that came late was committed earlier too, and so were changes that are captured again. Between files all of a
    file is compared with all before it, inside a file each change with those before it. In a log of files it suffices
    that one change precedes: a server that takes over may have come beyond the old place meanwhile. There each
    partition of a topic is a stream of its own, and what decides is which server goes back in it.

    Args:
        servers: of MySQL, before the batch.

    Raises:
        FatalError: `SOURCE_LOG_RESTARTED`.
    """
    log = _Log(decoded, state)
    known, newest = log_place(state.max_sequence), state.log_time or state.max_commit_ts
    for path, file in log.files:
        place, inside = log_place(file.max_sequence), decoded.figures.restarts.get(path)
        if known and newest and (lower := log.lower(file, known, newest)):
            since, latest = file.min_commit_ts or "", max(newest, state.max_commit_ts or "")
            raise _restarted(spec, path, LogRestart(place=lower, known=known, since=since, until=since, newest=latest))
        late = _lateness(inside.until, max(inside.newest, newest or "")) if inside else timedelta.min
        if inside and late > longest_transaction(inside.known):  # by the time known before the file
            since = inside.since if newest is None or inside.since > newest else inside.until
            raise _restarted(spec, path, replace(inside, since=since, newest=max(inside.newest, newest or "")))
        newest = _newest(file, known, newest)
        known = max(known or "", place or "")
    for server, restart in restarts_of(servers, decoded.schema.servers):
        raise _restarted(spec, f"server_id {server.name}" if server.name else spec.table, restart)


def _newest(file: FileFigures, known: str | None, newest: str | None) -> str | None:
    """The latest commit time at the end of the log, once a file is read.

    In a log of commits a file behind the end has the time there: an earlier one from the future is of no account.
    """
    place = log_place(file.max_sequence) or ""
    if known and place < known:
        return newest
    is_behind = bool(place) and not is_in_file(place) and place > (known or "")
    return file.max_commit_ts if is_behind else max(newest or "", file.max_commit_ts or "")


def restarts_of(known: Sequence[LogServer], of_files: Sequence[LogServer]) -> Iterator[tuple[LogServer, LogRestart]]:
    """Servers whose changes go back in the stream of a partition, though they were not captured again.

    Those of a server that has none before are new. So are those of a known one that are all later than what it had by
    its own clock, or are later than the first changes of all and precede these. Places that grow are one log, whatever
    its servers and their clocks say.
    """
    seen = tuple(known)
    ordered = sorted((server for server in of_files if server.to_file), key=lambda server: server.to_file)
    for _, servers in groupby(ordered, key=lambda server: server.to_file):
        file = tuple(servers)
        for new in file:
            others = [one for one in seen if one.partition in ("", new.partition)]
            if restart := _restart_of(new, others) or _restart_of_later(new, others):
                yield new, restart
        seen = servers_of((*seen, *file))


def _restart_of(new: LogServer, others: Sequence[LogServer]) -> LogRestart | None:
    """What goes back with the changes of a file that comes after all others of its partition."""
    own = [one for one in others if one.name == new.name]
    highest = max((new.behind, *(one.high for one in others)))
    if new.low >= highest or any(one.to_file >= new.from_file for one in others):
        return None
    since, lowest = min((one.since for one in others), default=""), min((one.low for one in others), default="")
    is_later = all(new.since > one.until for one in own) if own else new.until > since
    if not is_later and not (new.high < lowest and new.since > since):
        return None
    newest = max((one.until for one in others), default=new.since)
    return LogRestart(place=new.low, known=highest, since=new.since, until=new.until, newest=newest)


def _restart_of_later(old: LogServer, others: Sequence[LogServer]) -> LogRestart | None:
    """What goes back with changes that are known, where a file comes late that is before them in its partition."""
    for new in others:
        if new.name != old.name and old.to_file and old.to_file < new.from_file and new.low < old.high:
            return LogRestart(place=new.low, known=old.high, since=new.since, until=new.until, newest=old.until)
    return None


@dataclass(frozen=True)
class _Log:
    """A batch, and the table's state before it."""

    decoded: DecodedBatch
    state: TableState

    @cached_property
    def files(self) -> list[tuple[str, FileFigures]]:
        """Those with changes: of a topic with one partition as it was written, else by time."""
        order = self.decoded.schema.table_schema.file_order
        timed = [(path, f) for path, f in self.decoded.figures.files.items()
                 if f.max_sequence and f.min_commit_ts and f.max_commit_ts]  # fmt: skip
        places = {path: order(path) for path, _ in timed}
        if self._has_one_partition and None not in places.values():
            return sorted(timed, key=lambda entry: places[entry[0]] or "")
        return sorted(timed, key=lambda entry: entry[1].min_commit_ts or "")

    @cached_property
    def _has_one_partition(self) -> bool:
        known = self.decoded.schema.snapshots
        return known is not None and len(known.partitions) == 1

    def lower(self, file: FileFigures, known: str, newest: str) -> str | None:
        """The place of a file that precedes a known one, though its changes are later; None: none does.

        Files of MySQL's events whose partitions are known are compared with others of theirs alone, see `restarts_of`.
        """
        low, place = log_place(file.min_sequence), log_place(file.max_sequence)
        if not self._has_one_partition and any(server.to_file for server in self.decoded.schema.servers):
            return None
        if low and is_in_file(low) and low < known and self._are_later(file.min_commit_ts, newest, low, known):
            return low
        if not place or place >= known:
            return None
        some = _lateness(file.max_commit_ts, newest) > LONGEST_TRANSACTION
        return place if some or self._are_later(file.min_commit_ts, newest, place, known) else None

    def _are_later(self, since: str | None, newest: str, place: str, known: str) -> bool:
        """Whether changes from this time on are later than any of the log at a known place is.

        In one file of MySQL's log, changes in another partition of the topic may come later than that of a long
        statement, which is behind them in the log.
        """
        is_same_file = is_in_file(place) and place.partition(".")[0] == known.partition(".")[0]
        longest = LONGEST_TRANSACTION if is_same_file and not self._has_one_partition else longest_transaction(known)
        return _lateness(since, newest) > longest


def log_time(figures: Figures, state: TableState) -> str | None:
    """Latest commit time of changes at the end of the source's log or behind it; null while there is none."""
    known, newest = log_place(state.max_sequence), state.log_time or state.max_commit_ts
    timed = [(log_place(f.max_sequence) or "", f) for f in figures.files.values() if f.max_commit_ts]
    for place, file in sorted(timed, key=lambda entry: entry[0]):
        newest, known = _newest(file, known, newest), max(known or "", place)
    return newest


def _restarted(spec: TableSpec, path: str, restart: LogRestart) -> FatalError:
    again = rebuild_of(spec)
    remedy = (
        f"set options.log_began to the time of the reset, {restart.since} at the latest, e.g. "
        f'["{restart.since}"], and run again; where changes were ingested meanwhile, {again} to put them in order'
        if restart.since > restart.newest
        else "their times don't tell the logs apart: move the files of the former log out of the landing folder, let "
        f"the connector take a new snapshot, and run `gddl reload --from-files --yes --table {spec.table}`"
    )
    return FatalError(
        SOURCE_LOG_RESTARTED,
        f"{spec.table}: changes committed from {restart.since} on are at {restart.place} in the source's log, not "
        f"behind {restart.known}, which was committed by {restart.newest}: the log was reset; nothing was written",
        where=path,
        remedy=remedy,
    )


def _lateness(time: str | None, newest: str) -> timedelta:
    """How much later a time is; without one it is not."""
    return timedelta.min if time is None else datetime.fromisoformat(time) - datetime.fromisoformat(newest)


def files_before_log_began(before: Sequence[str], now: Sequence[str], ledger: Ledger) -> tuple[str, ...]:
    """Files ingested under another `log_began` than the row's, with changes from after a moment that differs.

    Their positions lack the number of that beginning, or have another's.
    """
    differing = set(before).symmetric_difference(now)
    if not differing or ledger.state.max_sequence is None:
        return ()
    moment = min(map(moment_of, differing))
    times = {path: entry.max_commit_ts for path, entry in ledger.all_entries().items()}
    return tuple(sorted(path for path, time in times.items() if time is not None and moment_of(time) >= moment))
