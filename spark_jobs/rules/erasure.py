"""Keys as texts: one that a user names, found in rows; and keys erased for good, known by a keyed hash alone.

A key has one text for each type, however it is written: in a command, in a row, or in a record of the quarantine.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.codes import KEY_INVALID
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import before_image_name, landed_name
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import DecimalType, SqlType, parse_type
from airflow_gddl.contract.table_spec import HASHED
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.plan.sequence import have_one_type, is_after
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import all_false, flat, gddl_field, is_text, is_true, sortable, sorted_rows, with_values
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.masks import hashed as hash_of_mask
from spark_jobs.rules.order import gddl_fields, old_key_columns, old_keys, with_gddl
from spark_jobs.rules.texts import MIDNIGHT, WHOLE_NUMBERS, WIDE, as_text, json_writer, plain_number

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Bound of an erasure: later rows with the key belong to a reused key.

    Attributes:
        until: time of the last request.
        sequence: JSON text of the highest sequence ingested then; None: none.
        fingerprints: of landing files that held the key then.
    """

    until: datetime
    sequence: str | None = None
    fingerprints: frozenset[str] = frozenset()

    def covers(self, commit_ts: datetime | None, sequence: str | None, file: PlannedFile | None) -> bool:
        """Whether a row is of before: by its file, by its commit time, by its sequence, by its file's time.

        Args:
            file: None: not known, as for rows of the quarantine.
        """
        if file is not None and file.fingerprint in self.fingerprints:
            return True
        if commit_ts is not None:
            return (commit_ts if commit_ts.tzinfo else commit_ts.replace(tzinfo=UTC)) <= self.until
        if sequence is not None and self.sequence is not None and _is_up_to(sequence, self.sequence):
            return True
        return file is None or datetime.fromisoformat(file.modified) <= self.until


def _is_up_to(sequence: str, bound: str) -> bool:
    """False for sequences that don't compare, such as those of before `sequence_by` was changed."""
    return have_one_type(sequence, bound) and not is_after(sequence, bound)


def _without_end(_: str) -> Bound:
    return Bound(until=datetime.max.replace(tzinfo=UTC))


_REAL = ("float", "double")
_EXACT_REALS = range(1 - 2**53, 2**53)
"""Whole numbers that are distinguished as doubles."""


@dataclass(frozen=True, kw_only=True)
class ErasedKeys:
    """The erased keys of one table; false when there are none.

    Attributes:
        table: the name that new hashes are made with.
        former: other names that hashes may have been made with. A name too many is harmless: it fits no hash.
        hashes: hexadecimal.
        columns: the key's columns in the order in which texts come. What is hashed has them by name, since the
            metadata may name them in another order at any time.
        bound: of a hash among these, bound up to which its rows are excluded.
        files: the files of a batch by path.
    """

    table: str
    former: tuple[str, ...] = ()
    salt: bytes = b""
    hashes: frozenset[str] = frozenset()
    columns: tuple[str, ...] = ()
    bound: Callable[[str], Bound] = field(default=_without_end, compare=False)
    files: Mapping[str, PlannedFile] = field(default_factory=dict, compare=False)

    def resolved(self) -> ErasedKeys:
        """A copy with all bounds resolved, for other processes."""
        return replace(self, bound={key_hash: self.bound(key_hash) for key_hash in self.hashes}.__getitem__)

    def __bool__(self) -> bool:
        return bool(self.hashes)

    def hash_of(self, texts: Sequence[str]) -> str:
        """The hash by which the key was erased; else that of a new erasure."""
        return self.held(texts) or self._hash(self.table, texts)

    def _hash(self, table: str, texts: Sequence[str]) -> str:
        return hmac.new(self.salt, message_of(table, self.arranged(texts)).encode(), hashlib.sha256).hexdigest()

    def arranged(self, texts: Sequence[T]) -> list[T]:
        """The parts of a key in the order in which they are hashed."""
        by_name = sorted(range(len(self.columns)), key=lambda at: self.columns[at].lower())
        return [texts[at] for at in by_name] if self.columns else list(texts)

    def held(self, texts: Sequence[str | None]) -> str | None:
        """The hash of this key if it was erased; one with a null part is none."""
        whole = [text for text in texts if text is not None]
        if not self.hashes or len(whole) != len(texts):
            return None
        made = (self._hash(table, whole) for table in (self.table, *self.former))
        return next((key_hash for key_hash in made if key_hash in self.hashes), None)

    def is_kept_out(self, key_hash: str, commit_ts: datetime | None, sequence: str | None, source: str) -> bool:
        """Whether a row of an erased key is within its bound.

        Args:
            source: path of the row's file.
        """
        return self.bound(key_hash).covers(commit_ts, sequence, self.files.get(source))


def message_of(table: str, texts: Sequence[str]) -> str:
    """What is hashed: no two keys have the same."""
    return f"{table}\n" + "".join(f"{len(text)}:{text}" for text in texts)


def key_text(value: Any, kind: SqlType) -> str | None:
    """A part of a key as the text of its column's type.

    Args:
        value: a value of the type, or the text of one.

    Returns:
        None when it doesn't fit the type, or when values of the type have no text that identifies them.
    """
    try:
        return None if value is None else _text(value, kind)
    except (ValueError, ArithmeticError):
        return None


def _text(value: Any, kind: SqlType) -> str | None:
    name = str(kind)
    if isinstance(kind, DecimalType) or name in (*WHOLE_NUMBERS, *_REAL):
        return _number(Decimal(str(value)), kind)
    if name == "string":
        return value if isinstance(value, str) else as_text(value, kind)
    if name == "boolean":
        return str(value).lower() if str(value).lower() in ("true", "false") else None
    if name == "date":
        return str(value if isinstance(value, date) else date.fromisoformat(str(value)))
    if name not in ("timestamp", "timestamp_ntz"):
        return None
    text = as_text(_moment(value), kind)
    return text.removesuffix(MIDNIGHT) if name == "timestamp_ntz" else text


def _number(given: Decimal, kind: SqlType) -> str | None:
    if isinstance(kind, DecimalType):
        fitted = given.quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
        fits = fitted == given and len(fitted.as_tuple().digits) <= kind.precision
        return plain_number(fitted) if fits else None
    if given != int(given):
        return None
    # Other doubles have no text that both engines agree on, and don't equal typed text.
    return str(int(given)) if int(given) in WHOLE_NUMBERS.get(str(kind), _EXACT_REALS) else None


def _moment(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment


Holds = Callable[[int, Sequence[str | None]], bool]
"""Whether a key is meant, given the number of its row."""


def without_erased(group: DecodedGroup, table_schema: TableSchema, erased: ErasedKeys) -> tuple[DecodedGroup, int]:
    """The group without rows of erased keys, good or bad, and how many these were; before images of one are emptied.

    An update that moved a row to an erased key becomes the delete of the old key, which it was too.
    """
    if not erased or not group.rows.num_rows:
        return group, 0
    bad = all_false(group.rows.num_rows)
    bad[list(group.bad)] = True
    matches = ErasedMatches.of(group.rows, table_schema, _of_erased(group.rows, table_schema, erased))
    turned = matches.turned & ~bad
    erased_rows = (matches.current & ~turned) | (matches.old & bad)  # a bad one's record would hold the before image
    if not (erased_rows | matches.old | turned).any():
        return group, 0
    rows = emptied(as_deletes(group.rows, table_schema, turned), table_schema, matches.old | turned)
    return replace(group, rows=rows).without(erased_rows), int(erased_rows.sum())


def _of_erased(rows: pa.Table, table_schema: TableSchema, erased: ErasedKeys) -> Holds:
    """Whether a row, or the row before it, is of an erased key and of a time before its erasure."""
    gddl, write = rows.column(GDDL), json_writer(parse_type(table_schema.sequence_type))

    def holds(row: int, key: Sequence[str | None]) -> bool:
        key_hash = erased.held(key)
        if key_hash is None:
            return False
        facts = gddl[row].as_py()
        sequence = None if facts["sequence"] is None else write(facts["sequence"])
        return erased.is_kept_out(key_hash, facts["commit_ts"], sequence, facts["source_file"])

    return holds


@dataclass(frozen=True, kw_only=True)
class ErasedMatches:
    """Which changes are of a key, were of it before, and moved a row to it from another key."""

    current: np.ndarray
    old: np.ndarray
    turned: np.ndarray
    others: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, rows: pa.Table, table_schema: TableSchema, holds: Holds) -> ErasedMatches:
        texts = key_texts(rows, table_schema)
        current = np.array([holds(row, key) for row, key in enumerate(texts)], dtype=bool)
        nothing = all_false(rows.num_rows)
        if not table_schema.before_of_key:
            return cls(current=current, old=nothing, turned=nothing, others=())
        olds = key_texts(rows, table_schema, old=True)
        old = np.array([holds(row, key) for row, key in enumerate(olds)], dtype=bool)
        ops = gddl_field(rows, "op").to_pylist()
        moved = np.array([op == "U" and a != b for op, a, b in zip(ops, texts, olds, strict=True)], dtype=bool)
        turned = current & ~old & moved
        others = dict.fromkeys(tuple(map(str, olds[row])) for row in np.flatnonzero(turned))
        return cls(current=current, old=old, turned=turned, others=tuple(others))


def as_deletes(rows: pa.Table, table_schema: TableSchema, where: np.ndarray) -> pa.Table:
    """Moved rows, where it is known, as the deletes of their old keys."""
    if not where.any():
        return rows
    olds = old_key_columns(rows, table_schema).items()
    rows = with_values(rows, {name: pc.if_else(where, value, rows.column(name)) for name, value in olds})
    return with_gddl(rows, op=pc.if_else(where, "D", gddl_fields(rows)["op"]))


def emptied(rows: pa.Table, table_schema: TableSchema, where: np.ndarray) -> pa.Table:
    """Before images set to null where the mask is true."""
    there = set(rows.column_names) if where.any() else set()
    images = {c.name: rows.column(c.name) for c in table_schema.before if c.name in there}
    return with_values(rows, {n: pc.if_else(where, pa.scalar(None, v.type), v) for n, v in images.items()})


def with_images(rows: pa.Table, table_schema: TableSchema) -> np.ndarray:
    """Rows with any before image."""
    mask = all_false(rows.num_rows)
    there = set(rows.column_names)
    for column in table_schema.before:
        if column.name in there:
            mask |= np.asarray(flat(rows.column(column.name)).is_valid())
    return mask


def key_texts(rows: pa.Table, table_schema: TableSchema, *, old: bool = False) -> list[tuple[str | None, ...]]:
    """Keys as text; `old`: those before the change, which are the same where no image says otherwise."""
    kinds: Mapping[str, SqlType] = {c.name: c.type for c in table_schema.data}
    columns = old_keys(rows, table_schema) if old else {key: rows.column(key) for key in table_schema.keys}
    texts = [[key_text(value, kinds[key]) for value in columns[key].to_pylist()] for key in table_schema.keys]
    return list(zip(*texts, strict=True))


@dataclass(frozen=True, kw_only=True)
class KeyRows:
    """Rows of one key of one table.

    Attributes:
        rows: some of them, in the table's columns.
        count: number of all rows.
    """

    rows: pa.Table
    count: int


def with_key(rows: pa.Table, schema: TableSchema, key: tuple[str, ...]) -> pa.Table:
    """Rows that have a key, or had it before their change.

    Args:
        rows: of a change table, or of another one, which has no before images.
        key: its parts as `erasure.key_text` writes them, in the order of `schema.keys`.
    """
    rows = _candidates(rows, schema, key)
    current = key_texts(rows, schema)
    old = key_texts(rows, schema, old=True) if schema.before_of_key else current
    return rows.filter(pa.array([key in pair for pair in zip(current, old, strict=True)], pa.bool_()))


def _candidates(rows: pa.Table, schema: TableSchema, key: tuple[str, ...]) -> pa.Table:
    """Rows whose first key part may be the wanted one, now or before: `key_texts` takes seconds for a million rows.

    Only of whole numbers and text, whose text is their cast in the type that the table has by now; else all rows.
    """
    names = (schema.keys[0], schema.before_of_key.get(schema.keys[0]))
    columns = [flat(rows.column(name)) for name in names if name in rows.column_names]
    if not (all(pt.is_integer(c.type) for c in columns) or all(is_text(c.type) for c in columns)):
        return rows
    hits = [is_true(pc.equal(column.cast(pa.string()), key[0])) for column in columns]
    return rows.filter(np.logical_or.reduce(hits))


def highest(rows: pa.Table, limit: int) -> KeyRows:
    """At most `limit` of the rows: those of the highest generation, sequence, batch and position."""
    gddl = gddl_fields(rows)
    at = sorted_rows([gddl["generation"], *sortable(gddl["sequence"]), gddl["batch_id"], gddl["position"]])
    return KeyRows(rows=rows.take(at[max(0, len(at) - limit) :]), count=rows.num_rows)


@dataclass(frozen=True, kw_only=True)
class WantedKey:
    """The key in the order of the table's keys: as the source has it, and as the lake has it, masks applied.

    Attributes:
        kinds: key column to its type.
        hashed: key columns whose values a mask hashes.
        before_image_prefix: prefix of the columns that hold a row's key before a change; empty: there are none.
    """

    kinds: dict[str, SqlType]
    source: dict[str, str]
    stored: tuple[str, ...]
    hashed: frozenset[str] = frozenset()
    before_image_prefix: str = ""

    @classmethod
    def of(cls, spec: TableSpec, table_schema: TableSchema, named: Mapping[str, str]) -> WantedKey:
        """Read the key that a user has named, with the types of the table's key columns.

        Args:
            named: key column, ignoring case, to its value as text; an empty name means the only key column.

        Raises:
            FatalError: `KEY_INVALID`: columns are missing or no key columns, or a value is none of its column's type;
                the message shows no value, which may be personal.
        """
        given = {(table_schema.spelled(name) or name).lower(): text for name, text in named.items()}
        if set(given) == {""} and len(table_schema.keys) == 1:
            given = {table_schema.keys[0].lower(): given[""]}
        if set(given) != {k.lower() for k in table_schema.keys}:
            names = ", ".join(name or "a value alone" for name in given)
            what = f"the key of {spec.table} is {', '.join(table_schema.keys)}, not {names}"
            remedy = f"name the whole key: {' '.join(f'--key {name}=…' for name in spec.keys)}"
            raise FatalError(KEY_INVALID, what, where=spec.table, remedy=remedy)
        masks = {table_schema.spelled(name): method for name, method in spec.mask.items()}
        kinds = {c.name: c.type for c in table_schema.data if c.name in table_schema.keys}
        source, stored = {}, []
        for key in table_schema.keys:
            text, hashed = given[key.lower()], (method := masks.get(key)) in HASHED
            fitted = text if hashed else key_text(text, kinds[key])
            if fitted is None:
                what = f"the value for {key} is not one of its type, {kinds[key]}"
                raise FatalError(KEY_INVALID, what, where=spec.table, remedy=how_written(key, kinds[key]))
            source[key] = fitted
            stored.append(hash_of_mask(text.encode(), method) if hashed else fitted)
        return cls(kinds={k: kinds[k] for k in table_schema.keys}, source=source, stored=tuple(stored),
                   hashed=frozenset(k for k in table_schema.keys if masks.get(k) in HASHED),
                   before_image_prefix=spec.before_image_prefix or "")  # fmt: skip

    def is_in(self, record: str) -> bool:
        """Whether a record of the quarantine, JSON text, is of this key, now or by its before image."""
        row = _values_of(record, Decimal)
        prefix = self.before_image_prefix
        current, old = [], []
        for column, kind in self.kinds.items():
            value, image = row.get(column.lower()), row.get(before_image_name(prefix, column).lower())
            current.append(key_text(value, kind))
            old.append(key_text(value if image is None else image, kind))
        return self.stored in {tuple(current), tuple(old)}


def key_of_record(record: str | None, keys: Sequence[str]) -> dict[str, Any] | None:
    """Key columns of a quarantined record, JSON text, and their values as delivered; null where it has none of them."""
    if record is None:
        return None
    row = _values_of(record, str)
    return {name: row[name.lower()] for name in keys if name.lower() in row} or None


def _values_of(record: str, number: Callable[[str], object]) -> dict[str, Any]:
    """Values of a quarantined record by landed name in lower case; `number` makes those with a fraction."""
    return {landed_name(name).lower(): value for name, value in json.loads(record, parse_float=number).items()}


def how_written(key: str, kind: SqlType) -> str:
    """The values of a type that have a text, and how it is written; see `key_text`."""
    name = str(kind)
    if name in WHOLE_NUMBERS:
        values = WHOLE_NUMBERS[name]
        return f"write --key {key}=… with a whole number from {values[0]} to {values[-1]}"
    if isinstance(kind, DecimalType):
        before, after = kind.precision - kind.scale, kind.scale
        return f"write --key {key}=… with a number of at most {before} digits before the point and {after} after it"
    if name in ("float", "double"):
        return (
            f"write --key {key}=… with a whole number below 2^53; a fraction, NaN and infinity can't be named, since "
            "their text is not exact"
        )
    examples = {"boolean": "true or false", "date": "a date such as 2024-02-29",
                "timestamp": "a time such as 2024-02-29T12:00:00Z",
                "timestamp_ntz": "a time without zone, such as 2024-02-29T12:00:00"}  # fmt: skip
    if name in examples:
        return f"write --key {key}=… with {examples[name]}"
    return f"keys of type {name} can't be named"
