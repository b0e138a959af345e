"""Whether changes have the place of their own commit, as cuts need it (docs/as-of.md#which-sources)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from spark_jobs.dialects.debezium.technical import Source, is_of_snapshot, is_read
from spark_jobs.plan.source_snapshots import EventLog

_VERSION = re.compile(r"([0-9]+)\.([0-9]+)\.")
_OLDEST = (2, 7)
"""From this version on, LogMiner's events have the SCN of their own commit; before, of their last one alone."""


def logs_of(sources: Iterable[Source]) -> tuple[EventLog, ...]:
    """The logs that events are of, each once; most connectors have no rule, and all of their events tell the same."""
    by_connector: dict[str, list[Source]] = {}
    for source in sources:
        by_connector.setdefault(str(source.get("connector") or ""), []).append(source)
    found: dict[EventLog, None] = {}
    for connector, events in by_connector.items():
        find = _BY_CONNECTOR.get(connector)
        found |= dict.fromkeys([EventLog(connector=connector)] if find is None else map(find, events))
    return tuple(found)


def _sqlserver(source: Source) -> EventLog:
    """Each database has a log of its own. A row of an incremental snapshot has the time at which it was read, by which
    the end of a snapshot of the whole table would be told wrong."""
    database = source.get("db")
    if is_read(source) and not is_of_snapshot(source):
        return EventLog(connector="sqlserver", lacks="it has rows of an incremental snapshot")
    if not database:
        return EventLog(connector="sqlserver", lacks="its events don't name their database (source.db)")
    return EventLog(connector="sqlserver", part=f"database {database}")


def _oracle(source: Source) -> EventLog:
    """By LogMiner a redo thread has its commits in order, by XStream the database has."""
    if is_read(source):
        return EventLog(connector="oracle")
    scn, commit = str(source.get("scn")), str(source.get("commit_scn"))
    if not commit.isdigit() or not scn.isdigit() or int(commit) < int(scn):
        return EventLog(connector="oracle", lacks="its events lack the SCN of their commit (source.commit_scn)")
    if source.get("lcr_position"):
        return EventLog(connector="oracle", part="XStream")
    thread, version = source.get("redo_thread"), _VERSION.match(str(source.get("version")))
    if thread is None:
        return EventLog(connector="oracle", lacks="its events don't name their redo thread (source.redo_thread)")
    if version is None or (int(version[1]), int(version[2])) < _OLDEST:
        what = f"its events are not of Debezium {'.'.join(map(str, _OLDEST))} or later (source.version)"
        return EventLog(connector="oracle", lacks=f"{what}: earlier ones have the SCN of another commit")
    return EventLog(connector="oracle", part=f"redo thread {thread}")


_BY_CONNECTOR: Mapping[str, Callable[[Source], EventLog]] = {"sqlserver": _sqlserver, "oracle": _oracle}
