"""Position of a change in its source's log, as text that sorts in log order; pure.

Only changes of one key are compared; docs/debezium.md states their order for each connector.
Parts are digits of fixed width, so that all positions of a connector have one length, and no two kinds
of connector share a length. A Kafka offset is not part of it: a restarted connector sends events
again, under new offsets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Source = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEX_DIGIT = re.compile(r"[0-9a-f]")
_DIGITS = "0123456789"
_LSN = re.compile(r"[0-9a-f]+(?::[0-9a-f]+)+")
_HEX = re.compile(r"(?:0x)?([0-9a-f]+)", re.IGNORECASE)


def position(source: Source) -> str | None:
    """Null where the connector states no position, or an invalid one."""
    find = _BY_CONNECTOR.get(str(source.get("connector")))
    try:
        return None if find is None else find(source)
    except (ValueError, TypeError):
        return None


def is_placed(source: Source) -> bool:
    """Whether the connector states positions, valid or not."""
    return str(source.get("connector")) in _BY_CONNECTOR


def commit_time(source: Source) -> datetime | None:
    """Commit time at the source, in the event's precision."""
    for field, unit in (("ts_us", 1), ("ts_ns", 1000), ("ts_ms", None)):
        value = source.get(field)
        if isinstance(value, int):
            try:
                return _EPOCH + timedelta(microseconds=value * 1000 if unit is None else value // unit)
            except OverflowError:
                return None
    return None


def _number(value: Any, width: int = 20) -> str:
    number = int(value)
    if number < 0:
        raise ValueError(value)
    return str(number).zfill(width)


def _postgresql(source: Source) -> str | None:
    """The last commit before the change's own, then the change: the order in which transactions committed.

    The change's position in the WAL does not suffice: a transaction that was open during a snapshot has
    changes before the snapshot's position, and they are newer than its rows.
    """
    lsn = source.get("lsn")
    return None if lsn is None else f"{_number(_last_commit(source) or lsn)}.{_number(lsn)}"


def _last_commit(source: Source) -> str | None:
    """The first half of `sequence`, a JSON array as text; null where there was no commit yet, or the version is old."""
    found = json.loads(source.get("sequence") or "[null]")
    return str(found[0]) if isinstance(found, list) and found and found[0] is not None else None


def _mysql(source: Source) -> str | None:
    """Number of the log file, position of the event in it, number of the row in the event."""
    name, at = source.get("file"), source.get("pos")
    number = name[len(name.rstrip(_DIGITS)) :] if isinstance(name, str) else ""
    if not number or at is None:
        return None
    return f"{_number(number, 10)}.{_number(at)}.{_number(source.get('row') or 0, 10)}"


def _sqlserver(source: Source) -> str | None:
    """LSN of the commit, LSN of the change (none in a snapshot), and which half of an update of a key it is."""
    commit = str(source.get("commit_lsn")).lower()
    change = str(source.get("change_lsn") or "null").lower()
    if change == "null":
        change = _HEX_DIGIT.sub("0", commit)  # as long as Db2's or SQL Server's own
    if not _LSN.fullmatch(commit) or not _LSN.fullmatch(change):
        return None
    return f"{commit}.{change}.{_number(source.get('event_serial_no') or 0, 10)}"


def _oracle(source: Source) -> str | None:
    """SCN of the commit and of the change, then redo record and number in it, for changes that share an SCN.

    As with PostgreSQL, the change's SCN alone may be before that of a snapshot which does not have it.
    """
    scn, commit = source.get("scn"), str(source.get("commit_scn"))
    if scn is None:
        return None
    redo = ".".join(part.lower().zfill(8) for part in _HEX.findall(source.get("rs_id") or "0.0.0"))
    first = commit if commit.isdigit() else scn
    return f"{_number(first)}.{_number(scn)}.{redo}.{_number(source.get('ssn') or 0, 10)}"


_BY_CONNECTOR: Mapping[str, Callable[[Source], str | None]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sqlserver,
    "db2": _sqlserver,
    "oracle": _oracle,
}
