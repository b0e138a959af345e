"""The columns that this dialect adds to rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.durations import moment_of
from spark_jobs.plan.loaded_transactions import LoadedTransactions
from spark_jobs.plan.schema_evolution import ColumnDefault
from spark_jobs.plan.sequence import EPOCH
from spark_jobs.rooms.dialects.debezium.connect_values import Values
from spark_jobs.rooms.dialects.protocol import LOADED, carried_list, match

Source = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEX_DIGIT = re.compile(r"[0-9a-f]")
_DIGITS = "0123456789"
_LSN = re.compile(r"[0-9a-f]+(?::[0-9a-f]+)+")
_HEX = re.compile(r"(?:0x)?([0-9a-f]+)", re.IGNORECASE)


LAST, LAST_OF_TABLE = "last", "last_in_data_collection"
_OF_SNAPSHOT = frozenset({"true", "first", "first_in_data_collection", LAST_OF_TABLE, LAST})
"""Values of `source.snapshot`; others: streamed changes (`false`) and rows of incremental snapshots."""


def snapshot_mark(source: Source) -> str:
    """`source.snapshot` in lower case; connectors before Debezium 1.0 write booleans."""
    value = source.get("snapshot")
    return "" if value is None else str(value).lower()


def is_of_snapshot(source: Source) -> bool:
    """Whether an event is a row of a snapshot of whole tables."""
    return snapshot_mark(source) in _OF_SNAPSHOT


def is_read(source: Source) -> bool:
    """Whether an event is a row of a snapshot, an incremental one too."""
    return snapshot_mark(source) not in ("", "false")


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

    A row of a snapshot was read once the last commit was delivered, and before each change of the next transaction,
    whose position may be lower than the snapshot's: it was open meanwhile. So a digit between the two tells rows that
    were read, 0, from changes, 1. Rows of an incremental snapshot have no position of their own.
    """
    lsn, (commit, last) = source.get("lsn"), _last_places(source)
    if lsn is None and commit is None and last is None:
        return None
    is_change = lsn is not None and not is_of_snapshot(source)
    return f"{_number(commit or lsn or last)}.{int(is_change)}.{_number(lsn or 0)}"


def _last_places(source: Source) -> tuple[str | None, str | None]:
    """`sequence`, a JSON array as text: the last commit (None: none yet), and the change, each null in old versions."""
    parts = json.loads(source.get("sequence") or "[]")
    places = [None if part is None else str(part) for part in (parts if isinstance(parts, list) else ())]
    first, second = (*places, None, None)[:2]
    return first, second


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


def with_order_of_delivery(table: pa.Table, sources: Sequence[Source], keys: Sequence[str]) -> pa.Table:
    """Rows with a key without fields that count in a transaction, and are not its order: there delivery is the order.

    SQL Server's `change_lsn` is none for deletes and inserts of keys (DBZ-2329). MySQL's `row` begins again in each
    event of a compressed transaction, all of which have one position. Without a key such fields tell rows apart.
    """
    if not keys or SEQUENCE not in table.column_names:
        return table
    places = [position({**source, **_UNORDERED.get(str(source.get("connector")), {})}) for source in sources]
    return table.set_column(table.column_names.index(SEQUENCE), SEQUENCE, pa.array(places, pa.string()))


_UNORDERED: Mapping[str, Mapping[str, None]] = {
    "sqlserver": {"change_lsn": None, "event_serial_no": None}, "mysql": {"row": None}, "mariadb": {"row": None},
}  # fmt: skip


def _oracle(source: Source) -> str | None:
    """SCN of the commit and of the change, then redo record and number in it, for changes that share an SCN.

    As with PostgreSQL, the change's SCN alone may be before that of a snapshot which does not have it. A commit before
    the change is another transaction's, the last of the redo thread (DBZ-5245): then the change's SCN is both. A change
    of the same row comes after the commit, so that its SCN is greater, whatever its thread.
    """
    scn, commit = source.get("scn"), str(source.get("commit_scn"))
    if scn is None:
        return None
    redo = ".".join(part.lower().zfill(8) for part in _HEX.findall(source.get("rs_id") or "0.0.0"))
    change_scn = _number(scn)
    first = max(_number(commit), change_scn) if commit.isdigit() else change_scn
    return f"{first}.{change_scn}.{redo}.{_number(source.get('ssn') or 0, 10)}"


def _mongodb(source: Source) -> str | None:
    """The cluster's time and the number of the event in its second, which an oplog entry has once."""
    time, at = source.get("ts_ms"), source.get("ord")
    return None if time is None or at is None else f"{_number(time)}.{_number(at, 10)}"


_BY_CONNECTOR: Mapping[str, Callable[[Source], str | None]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sqlserver,
    "db2": _sqlserver,
    "oracle": _oracle,
    "mongodb": _mongodb,
}


OP, SEQUENCE, TIME, CARRIED = "_dbz_op", "_dbz_sequence", "_dbz_ts", "_dbz_carried"
NUMBER = "_dbz_number"
"""Column of the number of a row's event in its transaction, in tables without keys."""
SHARD = "_dbz_shard"
"""Column of the shard of a document, for rows that name it in `keys`: an `_id` is unique on its shard alone."""
TABLE = "_dbz_table"
"""Column of the source's table of a row, for rows that name it in `keys`: a key is unique in its table alone."""
_TIME = pa.timestamp("us", "UTC")
_ADDED = (OP, SEQUENCE, TIME, CARRIED, NUMBER)

Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class Translated:
    """Rows of a file; `stated`: columns of text with a misfit, to the types that their schema states; `sources`: of the
    events, a row each; `unavailable`: columns without a value, since updates did not send theirs; `id_types`: see
    `SnapshotMarks`; `numbers`: see `number_in_transaction`, a row each, or empty; `defaults`: see `Probed`.
    """

    table: pa.Table
    stated: Mapping[str, pa.DataType]
    sources: Sequence[Source]
    unavailable: tuple[str, ...] = ()
    id_types: tuple[str, ...] = ()
    numbers: Sequence[str | None] = ()
    defaults: tuple[ColumnDefault, ...] = ()


def with_technical(
    ops: Sequence[str | None],
    data: Mapping[str, Values],
    sources: Sequence[Source],
    kept: Mapping[str, Sequence[bool]],
) -> Translated:
    """Rows with their operation first and their log position last.

    Args:
        kept: column to a mask of rows that lack its value: an update keeps the stored value, an insert has null.

    Raises:
        ValueError: a column of the source has the name of one that is added; rows are of several connectors.
    """
    if taken := [name for name in data if name.lower() in _ADDED]:
        raise ValueError(f"the source has a column {taken[0]!r}, which is reserved by this dialect")
    added: Columns = {}
    sequence = [position(source) for source in sources]
    if len({len(place) for place in sequence if place is not None}) > 1:
        raise ValueError("its events are of several connectors, whose log positions do not compare")
    if any(map(is_placed, sources)):
        added[SEQUENCE] = pa.array(sequence, pa.string())
    times: list[datetime | None] = [commit_time(source) for source in sources]
    added[TIME] = pa.array(times, _TIME)
    ops = _as_updates(ops, kept, sources)
    names = [*data, *added]
    listed = [carried_list(names, kept, at) if op in ("I", "U") else None for at, op in enumerate(ops)]
    if any(listed):
        added[CARRIED] = pa.array(listed, pa.string())
    arrays = {name: values.array for name, values in data.items()}
    stated = {name: values.stated for name, values in data.items() if values.stated is not None}
    unavailable = tuple(name for name in kept if pa.types.is_null(arrays[name].type))
    return Translated(pa.table({OP: pa.array(ops, pa.string()), **arrays, **added}), stated, sources, unavailable)


def _as_updates(
    ops: Sequence[str | None], kept: Mapping[str, Sequence[bool]], sources: Sequence[Source]
) -> list[str | None]:
    """Rows that were read and lack a value are updates of the rows that they are.

    An insert that lacks one (Debezium writes it for a changed key) is an insert: what the key had before is another
    row's.
    """
    return [
        "U" if op == "I" and is_read(sources[at]) and any(flags[at] for flags in kept.values()) else op
        for at, op in enumerate(ops)
    ]


def with_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Where no row is named (tombstones, truncates, deletes without a row), add key columns of nulls.

    Without them the file would be refused as another table's.
    """
    given = [name for name in table.column_names if name not in _ADDED]
    if given and pc.any(pc.is_in(table.column(OP), value_set=pa.array(["I", "U", "D"]))).as_py():
        return table
    for key in keys:
        if match(table.column_names, key) is None:
            table = table.append_column(key, pa.nulls(table.num_rows))
    return table


def number_in_transaction(transaction: object) -> str | None:
    """`total_order` of an event's `transaction`, which a change keeps when it is sent again; None: it states none."""
    number = transaction.get("total_order") if isinstance(transaction, Mapping) else None
    return None if number is None else str(number)


def with_numbers(table: pa.Table, numbers: Sequence[str | None], keys: Sequence[str]) -> pa.Table:
    """Rows without a key with the number of each in its transaction, which tells rows from one that is sent twice."""
    if keys or not any(numbers):
        return table
    return table.append_column(NUMBER, pa.array(numbers, pa.string()))


def with_sources(table: pa.Table, sources: Sequence[Source], keys: Sequence[str]) -> pa.Table:
    """Rows with the replica set, and the source's table, of each event where it is a part of the table's key."""
    origins = {SHARD: lambda source: source.get("rs"), TABLE: lambda source: table_of_source(source) or None}
    for name, origin in origins.items():
        if match(keys, name) is not None and match(table.column_names, name) is None:
            table = table.append_column(name, pa.array(map(origin, sources), pa.string()))
    return table


def table_of_source(source: Source) -> str:
    """The table or collection of an event, with its database and schema; empty: it states none."""
    table = source.get("table") or source.get("collection")
    parts = (source.get("db"), source.get("schema"), table)
    return ".".join(str(part) for part in parts if part) if table else ""


def with_epochs(table: pa.Table, began: Sequence[str]) -> pa.Table:
    """Rows with the epoch of their commit time in their position: how often the source's log was reset before it.

    Positions of different epochs don't compare. From the first reset on they are prefixed with the epoch's number,
    which sorts after every position without one.

    Args:
        began: ISO 8601, oldest first.
    """
    if not began or not {SEQUENCE, TIME} <= set(table.column_names):
        return table
    times, positions = table.column(TIME), table.column(SEQUENCE)
    for number, text in enumerate(began, start=1):
        since = pa.scalar(moment_of(text), _TIME)
        named = _of_log(table.column(SEQUENCE), number)
        positions = pc.if_else(pc.fill_null(pc.greater_equal(times, since), False), named, positions)
    return table.set_column(table.column_names.index(SEQUENCE), SEQUENCE, positions)


def with_log(table: pa.Table, number: int) -> pa.Table:
    """Rows of the log that a source began, after so many others, when its captured one was lost (docs/capture.md)."""
    if not number or SEQUENCE not in table.column_names:
        return table
    return table.set_column(table.column_names.index(SEQUENCE), SEQUENCE, _of_log(table.column(SEQUENCE), number))


def with_loaded(table: pa.Table, sources: Sequence[Source], loaded: LoadedTransactions | None, log: int) -> pa.Table:
    """Rows with `LOADED` for changes that a load has read.

    Args:
        loaded: None: none is known. `log`: number of the captured log.
    """
    if loaded is None:
        return table
    are_loaded = pa.array([_is_loaded(source, loaded, log) for source in sources], pa.bool_())
    return table.set_column(table.column_names.index(OP), OP, pc.if_else(are_loaded, LOADED, table.column(OP)))


def _is_loaded(source: Source, loaded: LoadedTransactions, log: int) -> bool:
    transaction, place = source.get("txId"), source.get("lsn")
    if source.get("connector") != "postgresql" or not isinstance(transaction, int) or not isinstance(place, int):
        return False
    return loaded.has(transaction, place, log)


def _of_log(positions: pa.ChunkedArray, number: int) -> pa.ChunkedArray:
    """Positions after all those of logs with a lower number; those without one have none."""
    return pc.binary_join_element_wise(f"log{number:04d}", positions, ":")


def with_other_epochs(rows: pa.Table, began: Sequence[str]) -> pa.Table:
    """Stored changes as `with_epochs` of these moments gives them, whatever moments they were stored with."""
    if SEQUENCE not in rows.column_names:
        return rows
    bare = pc.replace_substring_regex(rows.column(SEQUENCE), EPOCH, "")
    return with_epochs(rows.set_column(rows.column_names.index(SEQUENCE), SEQUENCE, bare), began)
