"""Delivered rows to changes, or to the quarantine (semantics, 1, 5 and 7)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from tests.oracle.casting import cast_text, masked, naive_utc, normal_text
from tests.oracle.conditions import truth
from tests.oracle.model import Arrival, Change, DeliveredFile, Key, Op, Quarantined, Sequence, Value
from tests.oracle.table_schema import TOTAL_ORDER, Shape

_OPS: dict[str, Op] = {"I": "I", "U": "U", "D": "D", "T": "T"}


class FaultError(Exception):
    """Why a row can't be taken."""

    def __init__(self, code: str, column: str | None = None) -> None:
        self.code = code
        self.column = column
        super().__init__(code)


def decode_file(
    table_schema: Shape, arrival: Arrival, numbers: Iterable[int] | None = None
) -> tuple[list[Change], list[Quarantined]]:
    """
    Args:
        numbers: of the rows that are meant; null: all.
    """
    changes, faults = [], []
    for number in range(len(arrival.file.rows)) if numbers is None else numbers:
        row = arrival.file.rows[number]
        try:
            change = _change(table_schema, arrival, number, row)
            if change.op == "T":
                changes.append(change)
                continue
            change = _within_filter(table_schema, change)
            if change is not None:
                _require_expected(table_schema, change)
                changes.append(change)
        except FaultError as fault:
            faults.append(Quarantined(arrival.file.name, number, fault.code, fault.column))
    return changes, faults


def with_marks(
    table_schema: Shape, arrival: Arrival, changes: Iterable[Change], bad: Iterable[Quarantined]
) -> list[Change]:
    """Changes of a file, marked where it has quarantined rows at their place."""
    if not table_schema.shares_places or not table_schema.keys or arrival.file.kind == "load":
        return list(changes)
    aside = {_place(table_schema, arrival, one.position) for one in bad if one.position is not None} - {None}
    return [replace(change, marked=change.sequence in aside) for change in changes]


def _place(table_schema: Shape, arrival: Arrival, number: int) -> Sequence:
    """The sequence of a row that may be bad; null: it has none."""
    delivered = arrival.file.rows[number]
    own = {name: value for name, value in delivered.items() if name in table_schema.sequence}
    try:
        return _sequence(table_schema, _cast(table_schema, "D", arrival.file, own))
    except FaultError:
        return None


def _change(table_schema: Shape, arrival: Arrival, number: int, delivered: Mapping[str, Value]) -> Change:
    load = arrival.file.kind == "load"
    op = _op(table_schema, load, delivered)
    if not table_schema.keys and op in ("U", "D"):
        raise FaultError("APPEND_ONLY_CHANGE")
    if op == "T":
        return _truncate(table_schema, arrival, number, delivered)
    values = _cast(table_schema, op, arrival.file, delivered)
    for column in table_schema.keys:
        if values.get(column) is None:
            raise FaultError("KEY_NULL", column)
    sequence = None if load else _sequence(table_schema, values)
    values, rescued = _fitted(table_schema, op, values)
    row = _with_stored_list(table_schema, _visible(table_schema, values))
    key = tuple(row[column] for column in table_schema.keys)
    old_key = _old_key(table_schema, row, key) if op == "U" else None
    if op == "U":
        _require_known_names(table_schema, arrival.file, values)
    return Change(
        op=op,
        key=key,
        sequence=sequence,
        row=row,
        carried=_carried(table_schema, values, row, rescued),
        rescued=rescued,
        tie_break=table_schema.spec.tie_break,
        forced=not load and _forced(table_schema, values),
        old_key=old_key,
        generation=arrival.generation,
        run=arrival.run,
        source_file=arrival.file.name,
        position=(arrival.ordinal << 40) + number,
        commit=_commit(table_schema, delivered),
    )


def _commit(table_schema: Shape, delivered: Mapping[str, Value]) -> datetime | None:
    """The first of the columns for it that the file has; a time without a zone is meant in UTC."""
    came = {column.lower(): value for column, value in delivered.items()}
    value = next((came[name.lower()] for name in table_schema.commit_times if name.lower() in came), None)
    try:
        value = cast_text(value, "timestamp") if isinstance(value, str) else value
    except ValueError:
        return None
    return naive_utc(value) if isinstance(value, datetime) else None


def _truncate(table_schema: Shape, arrival: Arrival, number: int, delivered: Mapping[str, Value]) -> Change:
    """It has no key, and no column but the sequence counts."""
    own = {name: value for name, value in delivered.items() if name in table_schema.sequence}
    return Change(
        op="T", key=(), sequence=_sequence(table_schema, _cast(table_schema, "D", arrival.file, own)), row={},
        carried=frozenset(), forced=False, old_key=None, generation=arrival.generation, run=arrival.run,
        source_file=arrival.file.name, position=(arrival.ordinal << 40) + number,
        commit=_commit(table_schema, delivered),
    )  # fmt: skip


def _within_filter(table_schema: Shape, change: Change) -> Change | None:
    """The change; one outside the filter as the delete of its key, rows of loads and without a key as none."""
    spec = table_schema.spec
    if spec.where is None or change.op == "D" or truth(spec.expressions[spec.where], change.row):
        return change
    if change.op == "R" or not table_schema.keys:
        return None
    key = change.key if change.old_key is None else change.old_key
    kept = {*table_schema.technical, *table_schema.sequence}
    row = {name: value if name in kept else None for name, value in change.row.items()}
    return replace(change, op="D", key=key, old_key=None, row=row | dict(zip(table_schema.keys, key, strict=True)))


def _require_expected(table_schema: Shape, change: Change) -> None:
    """Deletes are not checked, nor updates by rules on columns that they don't carry."""
    spec = table_schema.spec
    for expectation in spec.expect.values() if change.op != "D" else ():
        tree = spec.expressions[expectation.rule]
        columns = {table_schema.names.get(name.lower(), name) for name in tree.columns}
        if change.op == "U" and not columns <= change.carried:
            continue
        if expectation.on == "quarantine" and not truth(tree, change.row):
            raise FaultError("EXPECTATION_FAILED", tree.columns[0] if len(tree.columns) == 1 else None)


def _op(table_schema: Shape, load: bool, delivered: Mapping[str, Value]) -> Op:
    name = table_schema.options.op_column
    came = next((value for column, value in delivered.items() if column.lower() == name.lower()), None)
    came = came.strip().upper() if isinstance(came, str) else came
    if load:
        if came not in (None, "", "I", "R"):
            raise FaultError("OP_UNKNOWN", name)
        return "R"
    if came in (None, "") and table_schema.options.missing_op == "insert":
        return "I"
    if came not in _OPS:
        raise FaultError("OP_UNKNOWN", name)
    return _OPS[came]


def _cast(table_schema: Shape, op: Op, file: DeliveredFile, delivered: Mapping[str, Value]) -> dict[str, Value]:
    """Every column of the file under the table's spelling; columns that the table does not take are left out.

    A before image has the type of its column. Of a delete only key and sequence must fit.
    """
    wanted = {name.lower(): kind for name, kind in table_schema.options.types.items()}
    values: dict[str, Value] = {}
    for column in file.columns:
        name = table_schema.names.get(column.lower())
        if name is None:
            continue
        value = delivered.get(column)
        kind = (
            "timestamp"
            if name in table_schema.times and name in table_schema.sequence
            else wanted.get(column.lower(), wanted.get(table_schema.image_of(name).lower()))
        )
        if name in table_schema.sequence and value == "":
            value = None
        if isinstance(value, str) and kind is not None:
            try:
                value = cast_text(value, kind)
            except ValueError as error:
                unparsable = name in table_schema.sequence and op != "R"
                if op != "D" or unparsable or name in table_schema.keys:
                    raise FaultError("SEQUENCE_UNPARSABLE" if unparsable else "CAST_FAILED", name) from error
                value = None
        values[name] = value
    return values


def _fitted(table_schema: Shape, op: Op, values: dict[str, Value]) -> tuple[dict[str, Value], dict[str, str]]:
    """Texts in columns of whole numbers as such, null where they are none; and these as JSON, if they are rescued."""
    found, rescued = dict(values), {}
    for column, value in values.items():
        if isinstance(value, str) and column in table_schema.numbers:
            try:
                found[column] = cast_text(value, "bigint")
            except ValueError as error:
                if table_schema.spec.schema_evolution.type_change == "rescue":
                    rescued[column] = json.dumps(value, ensure_ascii=False)
                elif op != "D":
                    raise FaultError("CAST_FAILED", column) from error
                found[column] = None
        elif column in table_schema.texts and value is not None:
            found[column] = str(value)
    return found, rescued


def _sequence(table_schema: Shape, values: Mapping[str, Value]) -> Sequence:
    for column in table_schema.sequence or ("",):
        if values.get(column) is None:
            raise FaultError("SEQUENCE_NULL", column or None)
    return tuple(_part(column, values[column]) for column in table_schema.sequence)


def _part(column: str, value: Value) -> Value:
    """Numbers that come as text compare as numbers; columns that the service adds have a form of their own."""
    if hasattr(value, "tzinfo"):
        return naive_utc(value)
    return normal_text(value) if isinstance(value, str) and column not in TOTAL_ORDER else value


def _visible(table_schema: Shape, values: Mapping[str, Value]) -> dict[str, Value]:
    """What reaches the lake: selected and masked; a before image is masked like its column."""
    methods = {name.lower(): method for name, method in table_schema.spec.mask.items()}
    row = {}
    for column in table_schema.changes:
        if column in values:
            method = methods.get(table_schema.image_of(column).lower())
            row[column] = values[column] if method is None else masked(values[column], method)
    return row


def _carried(
    table_schema: Shape, values: Mapping[str, Value], row: Mapping[str, Value], rescued: Mapping[str, str]
) -> frozenset[str]:
    columns = set(table_schema.replica)
    if table_schema.spec.schema_evolution.dropped_column == "keep":
        columns &= set(row) | table_schema.technical
    listed = _listed(table_schema, values)
    if listed is not None:
        columns &= listed | table_schema.technical
    if table_schema.spec.ignore_null_updates:
        columns -= {column for column in columns if row.get(column) is None and column not in rescued}
    return frozenset(columns | set(table_schema.keys))


def _listed(table_schema: Shape, values: Mapping[str, Value]) -> set[str] | None:
    listing = table_schema.names.get((table_schema.spec.columns_to_update or "").lower())
    value = None if listing is None else values.get(listing)
    return None if listing is None or value is None else {listing, *_names(table_schema, value)}


def _require_known_names(table_schema: Shape, file: DeliveredFile, values: Mapping[str, Value]) -> None:
    """A list that names no column of its file would drop the update."""
    listing = table_schema.names.get((table_schema.spec.columns_to_update or "").lower(), "")
    if values.get(listing):
        known = {table_schema.names.get(column.lower(), column) for column in file.columns}
        if known.isdisjoint(_names(table_schema, values[listing])):
            raise FaultError("COLUMNS_UNKNOWN", listing)


def _names(table_schema: Shape, value: Value) -> list[str]:
    """The table's names of the columns that a delivered list names: text with commas, or an array."""
    names = value.split(",") if isinstance(value, str) else value
    return [table_schema.names.get(name.strip().lower(), name.strip()) for name in names]


def _with_stored_list(table_schema: Shape, row: dict[str, Value]) -> dict[str, Value]:
    """The row with its list of columns under the names of the table."""
    listing = table_schema.names.get((table_schema.spec.columns_to_update or "").lower(), "")
    if row.get(listing) is None:
        return row
    names = _names(table_schema, row[listing])
    return {**row, listing: ",".join(names) if isinstance(row[listing], str) else names}


def _forced(table_schema: Shape, values: Mapping[str, Value]) -> bool:
    if table_schema.spec.force_update is None:
        return False
    value = values.get(table_schema.names.get(table_schema.spec.force_update.lower(), ""))
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "t", "y", "yes", "1"))


def _old_key(table_schema: Shape, row: Mapping[str, Value], key: Key) -> Key | None:
    """Null when there is no before image, or it names the same key."""
    parts = []
    for column, new in zip(table_schema.keys, key, strict=True):
        before = table_schema.before(column)
        old = row.get(before) if before else None
        parts.append(new if old is None else old)
    return tuple(parts) if tuple(parts) != key else None
