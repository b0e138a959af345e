"""Decodes raw columns of a group of files into changes, each valid or with its first error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import (
    APPEND_ONLY_CHANGE,
    CAST_FAILED,
    COLUMNS_UNKNOWN,
    FILTER_COLUMN_MISSING,
    KEY_NULL,
    OP_UNKNOWN,
    PARTITION_VALUE_REFUSED,
    ROW_MALFORMED,
    SEQUENCE_NULL,
    SEQUENCE_PRECISION,
    SEQUENCE_TYPE,
    SEQUENCE_UNPARSABLE,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import DecimalType, ScalarType, SqlType, StructType, parse_type, unsupported_part
from spark_jobs.plan.planned_batch import BatchPlan, Truncate
from spark_jobs.plan.schema_evolution import STRING
from spark_jobs.plan.sequence import Forms
from spark_jobs.plan.sharding import rebuild_of
from spark_jobs.plan.table_schema import GDDL, TableSchema, withholds
from spark_jobs.rooms.dialects.protocol import LOADED, TRUNCATE, match
from spark_jobs.rules.arrays import (
    all_false,
    all_true,
    arrow_type,
    flat,
    gddl_field,
    in_one_form,
    is_text,
    is_true,
    recast,
)
from spark_jobs.rules.carried import before_image, incomplete, name_none, stored_lists
from spark_jobs.rules.convert import Fitted, Mask, but, each, either, fit, mask_of
from spark_jobs.rules.delivered_columns import DeliveredColumns, RowProblem
from spark_jobs.rules.delta_values import unfit_texts
from spark_jobs.rules.errors_table import BYTES, NANOS, record_ddl
from spark_jobs.rules.evaluate import Tally, checked, outside_filter, tree_of
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import RawGroup
from spark_jobs.rules.order import gddl_fields, generations, moved_rows, with_gddl
from spark_jobs.rules.positions import replayed_position, with_marks, with_runs
from spark_jobs.rules.texts import BLANKS, as_text, forms, json_writer, nano_text, normal_form, read_json, rows_json

_TEXT = json_writer(STRING)
_BINARY = ScalarType("binary")
_NANOS = DecimalType(38, 0)


@dataclass(frozen=True)
class Record:
    """A row as it was delivered, masked, without what the row's selection leaves out: JSON, and the DDL to read it."""

    json: str
    schema: str


def records(columns: DeliveredColumns, bad: Sequence[int]) -> tuple[Record, ...]:
    """The records of rows by their numbers."""
    by_row: dict[int, Record] = {}
    for unread, rows in _by_unread(columns, bad).items():
        by_row |= dict(zip(rows, _alike(columns, rows, unread), strict=True))
    return tuple(by_row[row] for row in bad)


def _by_unread(columns: DeliveredColumns, bad: Sequence[int]) -> dict[frozenset[str], list[int]]:
    """Rows by the columns in which they have text that is not UTF-8."""
    hidden = {*columns.how.masks, *columns.how.withheld}
    unread = {n: v for n, v in columns.group.invalid.items() if n not in hidden}
    parts: dict[frozenset[str], list[int]] = {}
    for row in bad:
        parts.setdefault(frozenset(n for n, v in unread.items() if v[row].is_valid), []).append(row)
    return parts


def _alike(columns: DeliveredColumns, rows: Sequence[int], unread: frozenset[str]) -> list[Record]:
    group, how = columns.group, columns.how
    at = pa.array(rows, pa.int64())
    kept = [(name, kind) for name, kind in how.types.items() if name not in how.withheld]
    shown = [(name, *_shown(columns, name, kind, at, unread)) for name, kind in kept]
    ddl = record_ddl(how.columns, how.masks, group.past, unread, how.withheld)
    texts = rows_json(shown, nulls=True)
    if group.malformed is not None:
        lines = group.malformed.take(at).to_pylist()
        texts = [text if line is None else _malformed(columns, text, line, [name for name, _ in kept])
                 for text, line in zip(texts, lines, strict=True)]  # fmt: skip
    return [Record(text, ddl) for text in texts]


def _malformed(columns: DeliveredColumns, text: str, line: str, names: Sequence[str]) -> str:
    """The record of a malformed row: its values, of unknown columns, may be some that must not be stored."""
    if withholds(columns.how.dialect.spec):
        return rows_json([(name, pa.nulls(1, pa.string()), STRING) for name in names], nulls=True)[0]
    return f'{{"line":{_TEXT(line)}}}' if columns.group.translated else text


def _shown(
    columns: DeliveredColumns, name: str, kind: SqlType, at: pa.Array, unread: frozenset[str]
) -> tuple[pa.Array, SqlType]:
    """Values of a column as the record shows them; text that is not UTF-8 as its bytes."""
    group, method = columns.group, columns.how.masks.get(name)
    if method == "null" and not group.already_masked:
        return pa.nulls(len(at), arrow_type(STRING)), STRING
    if method is not None and not group.already_masked:
        return columns.hashed(name, at), STRING
    if name in unread:
        values = group.invalid[name].take(at)
        return (values.cast(pa.binary()) if is_text(values.type) else pa.nulls(len(at), pa.binary())), _BINARY
    if name in group.past:
        return _whole_nanos(group.columns[name].take(at), group.past[name].take(at)), _NANOS
    return group.columns[name].take(at), STRING if unsupported_part(kind) else kind


def _whole_nanos(times: pa.Array, past: pa.Array) -> pa.Array:
    """Nanoseconds since 1970, more than 64 bits hold before 1677 and after 2262."""
    pairs = zip(times.cast(pa.int64()).to_pylist(), past.to_pylist(), strict=True)
    return pa.array(
        [None if micros is None else micros * 1000 + (rest or 0) for micros, rest in pairs], arrow_type(_NANOS)
    )


def _micros_and_past(nanos: Sequence[int | Decimal | None], kind: SqlType) -> tuple[pa.Array, pa.Array]:
    """Times of a type, and the nanoseconds past their microsecond."""
    pairs = [(None, None) if number is None else divmod(int(number), 1000) for number in nanos]
    micros, past = (pa.array([pair[at] for pair in pairs], pa.int64()) for at in (0, 1))
    return micros.cast(arrow_type(kind)), past


@dataclass(frozen=True, kw_only=True)
class ReplayGroup:
    """Unresolved rows of one record schema (DDL) and kind, as raw rows; columns by name and SQL type."""

    raw: RawGroup
    kind: str
    columns: tuple[tuple[str, str], ...]


def replayed(rows: Sequence[Mapping[str, Any]]) -> list[ReplayGroup]:
    """Rows of the errors table with a record, as raw rows.

    Args:
        rows: with `id`, `batch_id`, `record`, `record_schema`, `code`, `kind`, `source_file`, `generation`.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["record_schema"]), []).append(row)
    return [_replayed(kind, ddl, groups[kind, ddl]) for kind, ddl in sorted(groups)]


def _replayed(kind: str, ddl: str, rows: Sequence[Mapping[str, Any]]) -> ReplayGroup:
    fields = record_columns(ddl)
    texts = [json.loads(r["record"], parse_float=Decimal) for r in rows]
    columns, invalid, past = {}, {}, {}
    for column in fields:
        if column.is_nanos:
            times = _micros_and_past([t.get(column.name) for t in texts], parse_type(column.kind))
            columns[column.name], past[column.name] = times
            continue
        kept = parse_type(column.stored)
        values = pa.array([read_json(t.get(column.name), kept) for t in texts], arrow_type(kept))
        if column.is_bytes:
            invalid[column.name] = values
            values = pa.nulls(len(rows), arrow_type(parse_type(column.kind)))
        columns[column.name] = values
    lines = [r["record"] if r["code"] == ROW_MALFORMED else None for r in rows]
    raw = RawGroup(
        columns=columns,
        rows=len(rows),
        source=pa.array([r["source_file"] for r in rows], pa.string()),
        position=pa.array([_position(r) for r in rows], pa.int64()),
        generation=pa.array([r["generation"] for r in rows], pa.int32()),
        malformed=pa.array(lines, pa.string()) if any(lines) else None,
        past=past,
        already_masked=True,
        invalid=invalid,
    )
    return ReplayGroup(raw=raw, kind=kind, columns=tuple((column.name, column.kind) for column in fields))


def _position(row: Mapping[str, Any]) -> int:
    """Its position in the batch that has quarantined it is a part of its id."""
    return replayed_position(row["batch_id"], int(row["id"].rpartition("/")[2]))


@dataclass(frozen=True, kw_only=True)
class RecordColumn:
    """A column of a record.

    Attributes:
        kind: its SQL type in the file; `stored`: the one in the record.
        is_nanos: times, stored as whole nanoseconds.
        is_bytes: text that is not UTF-8, stored as its bytes.
    """

    name: str
    kind: str
    stored: str
    is_nanos: bool = False
    is_bytes: bool = False


def record_columns(ddl: str) -> list[RecordColumn]:
    """The columns that a record's DDL reports."""
    columns = []
    for name, rest in split_ddl(ddl):
        stored, _, comment = rest.partition(" COMMENT '")
        comment = comment.rstrip("'")
        nanos, as_bytes = comment.startswith(NANOS), comment.startswith(BYTES)
        kind = comment.removeprefix(NANOS).removeprefix(BYTES) if nanos or as_bytes else stored
        columns.append(RecordColumn(name=name, kind=kind, stored=stored, is_nanos=nanos, is_bytes=as_bytes))
    return columns


def split_ddl(ddl: str) -> list[tuple[str, str]]:
    """Name and all that follows it, at commas outside brackets, quotes and backticks."""
    parts, depth, inside, start = [], 0, "", 0
    for at, char in enumerate(ddl):
        if inside:
            inside = "" if char == inside else inside
        elif char in "`'":
            inside = char
        elif char == "," and depth == 0:
            parts.append(ddl[start:at].strip())
            start = at + 1
        else:
            depth += (char in "<(") - (char in ">)")
    parts.append(ddl[start:].strip())
    columns = []
    for part in filter(None, parts):
        end = re.match(r"`((?:[^`]|``)+)` ", part)
        if end is not None:  # `record_ddl` quotes every name
            columns.append((end[1].replace("``", "`"), part[end.end() :]))
    return columns


_OPERATIONS = ("I", "U", "D")
_OF_TRUNCATES = (ROW_MALFORMED, OP_UNKNOWN, SEQUENCE_UNPARSABLE, SEQUENCE_NULL)
"""What can be wrong with a truncate."""


@dataclass(frozen=True, kw_only=True)
class DecodedGroup:
    """Decoded rows of files with the same columns.

    Attributes:
        rows: columns of the change table and `_gddl`, good rows and bad.
        bad: numbers of the bad rows, with `problems` and `records` of each.
        reduced: times that were cut or rounded to microseconds.
        rescued: good rows with values in `_rescued_data`.
        incomplete: good rows that moved, or are inserts, and may lack values, see `carried.incomplete`.
        partial: good updates of CSV that lack columns.
        empty_texts: as in `RawGroup`.
        forms: sequence column to the forms of its texts in good rows, see `plan.sequence`.
        tallies: of expectations, by name.
        outside: rows outside the row filter; None: none.
        filtered: rows that were left out for it.
        truncating: good rows that are truncates, which are no changes of a key; None: none.
        truncates: what was left out of these.
    """

    kind: str
    rows: pa.Table
    bad: tuple[int, ...] = ()
    problems: tuple[RowProblem, ...] = ()
    records: tuple[Record, ...] = ()
    reduced: int = 0
    rescued: int = 0
    incomplete: int = 0
    partial: int = 0
    empty_texts: int = 0
    forms: Mapping[str, Forms] = field(default_factory=dict)
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    outside: Mask = None
    filtered: int = 0
    truncating: Mask = None
    truncates: tuple[Truncate, ...] = ()

    def without(self, dropped: np.ndarray) -> DecodedGroup:
        """The group without some rows, good or bad."""
        numbers = np.cumsum(~dropped) - 1
        remaining = [(int(numbers[row]), p, r) for row, p, r in zip(self.bad, self.problems, self.records, strict=True)
                if not dropped[row]]  # fmt: skip
        return replace(
            self, rows=self.rows.filter(~dropped), bad=tuple(row for row, _, _ in remaining),
            problems=tuple(p for _, p, _ in remaining), records=tuple(r for _, _, r in remaining),
        )  # fmt: skip

    @property
    def good(self) -> pa.Table:
        if not self.bad:
            return self.rows
        kept = all_true(self.rows.num_rows)
        kept[list(self.bad)] = False
        return self.rows.filter(kept)


@dataclass(frozen=True)
class Stamp:
    """What is the same for all rows of a batch; `applied_at`: ISO 8601."""

    batch_id: str
    applied_at: str

    @classmethod
    def of(cls, plan: BatchPlan) -> Stamp:
        return cls(plan.batch_id, plan.planned_at)


def decode(group: RawGroup, how: FileGroup, table_schema: TableSchema, stamp: Stamp) -> DecodedGroup:
    """Each row for itself, so that a group may be decoded in any parts; runs of rows (`positions`) are of a part."""
    return _Decoder(group, how, table_schema, stamp).decode()


@dataclass(frozen=True)
class _Decoder:
    group: RawGroup
    how: FileGroup
    table_schema: TableSchema
    stamp: Stamp

    @cached_property
    def _columns(self) -> DeliveredColumns:
        return DeliveredColumns(self.group, self.how)

    def decode(self) -> DecodedGroup:
        op = self._op()
        deletes = mask_of(pc.equal(op, "D")) if self.how.kind == "change" else None
        truncating = mask_of(pc.equal(op, TRUNCATE)) if self._may_truncate else None
        planned = self._columns.values(deletes)
        before = self._columns.planned(self.how.before.actions, deletes)
        sequence, unparsable = self._sequence()
        has_texts = self.table_schema.ordered_text and self.how.kind == "change"
        texts = self._ordered_texts() if has_texts else {}
        rescued = [self._columns.rescued_json(planned.rescued)] if self.table_schema.rescues else []
        listing, spec = self._listing, self.table_schema.spec
        values = planned.values if listing is None else self._with_stored_lists(planned.values)
        rows = self._of_change_table([*values, *rescued, *before.values, self._struct(op, sequence)])
        problems = [*self._row_problems(op, planned.values, deletes), *self._sequence_problems(sequence, unparsable),
                    *planned.problems, *before.problems]  # fmt: skip
        problems += self._image_problems(rows, deletes) if self.table_schema.before_of_key else []
        problems += [] if listing is None else self._list_problems(listing, rows, op)
        loaded = mask_of(pc.equal(op, LOADED)) if self._may_be_loaded else None
        exempt = either(truncating, loaded)
        if exempt is not None:
            problems = [replace(p, where=but(p.where, loaded if p.code in _OF_TRUNCATES else exempt)) for p in problems]
        outside = None if spec.where is None else self._outside(rows, op, problems, exempt)
        tallies: Mapping[str, Tally] = {}
        if spec.expect:
            failing, tallies = self._expected(rows, problems, either(outside, exempt))
            problems += failing
        bad, first_problems = _first_of(problems, self.group.rows)
        rows = self._marked(rows, bad)
        truncating = None if truncating is None else truncating & self._sound(problems)
        partly = all_false(rows.num_rows) if listing is None else self._begun_in_part(listing, rows)
        if self.table_schema.partial:
            partly = partly | incomplete(rows, self.table_schema, moved_rows(rows, self.table_schema))
        return DecodedGroup(
            kind=self.how.kind,
            rows=rows,
            bad=bad,
            problems=first_problems,
            records=records(self._columns, bad),
            reduced=planned.reduced + before.reduced + self.group.reduced,
            rescued=_set_in_good(rescued, bad),
            incomplete=int(np.delete(partly, list(bad)).sum()),
            partial=_set_in_good(self.group.csv_lists, bad),
            empty_texts=self.group.empty_texts,
            forms={name: self._forms(values, bad) for name, values in texts.items()},
            tallies=tallies,
            outside=outside,
            truncating=truncating,
        )

    def _of_change_table(self, columns: Sequence[pa.Array]) -> pa.Table:
        """Columns of the change table under their names, keys in one form."""
        names = [*self.table_schema.change_columns, GDDL]
        keys = {*self.table_schema.keys, *self.table_schema.before_of_key.values()}
        columns = [in_one_form(v) if name in keys else v for name, v in zip(names, columns, strict=True)]
        return pa.Table.from_arrays(columns, names=names)

    def _with_stored_lists(self, values: Sequence[pa.Array]) -> list[pa.Array]:
        """The table's columns with lists of columns as they are stored.

        A list of the dialect's is of the values of its file: columns that the file lacks are carried as its plan says.
        """
        empties = self.how.plan.actions if self._are_lists_of_dialect else ()
        emptied = [action.target.name for action in empties if action.how == "missing_null"]
        return [
            stored_lists(v, self.how.names, self.table_schema, emptied) if column.name == self._listing else v
            for column, v in zip(self.table_schema.data, values, strict=True)
        ]

    def _list_problems(self, listing: str, rows: pa.Table, op: pa.Array) -> list[RowProblem]:
        """Updates whose list names no column of the file: they would carry nothing."""
        if self._are_lists_of_dialect or self.how.kind != "change":
            return []
        where = is_true(pc.equal(op, "U")) & name_none(flat(rows.column(listing)), self.how.names, self.table_schema)
        return [RowProblem(where, COLUMNS_UNKNOWN, listing, "an update whose list of columns names none of its file")]

    def _begun_in_part(self, listing: str, rows: pa.Table) -> np.ndarray:
        """Inserts of which the dialect lists what they carry: the source did not send the rest, which is null."""
        if not self._are_lists_of_dialect:
            return all_false(rows.num_rows)
        return is_true(pc.and_(pc.equal(gddl_field(rows, "op"), "I"), rows.column(listing).is_valid()))

    @cached_property
    def _listing(self) -> str | None:
        """The column with lists of the columns that changes carry."""
        return self.table_schema.spelled(self.table_schema.spec.columns_to_update)

    @property
    def _are_lists_of_dialect(self) -> bool:
        return self.table_schema.spec.columns_to_update == self.how.dialect.carried

    @cached_property
    def _may_truncate(self) -> bool:
        """Whether truncates are known; those of quarantined records came before they were."""
        return self.how.kind == "change" and not self.group.replayed

    @property
    def _may_be_loaded(self) -> bool:
        """Whether a load may have read changes already, see `LOADED`."""
        return self._may_truncate and self.how.dialect.names_transactions

    def _outside(self, rows: pa.Table, op: pa.Array, problems: list[RowProblem], exempt: Mask) -> Mask:
        """Rows outside the row filter; problems of rows for which it can't be decided are added."""
        self._require_columns_of_filter(self.table_schema.spec, op)
        sound = self._sound(problems)
        sound = sound if exempt is None else sound & ~exempt
        outside, undecided = outside_filter(rows, self.table_schema, sound)
        problems.append(undecided)
        return outside if outside.any() else None

    def _require_columns_of_filter(self, spec: TableSpec, op: pa.Array) -> None:
        """Files without a column of the filter would empty the table.

        Raises:
            FatalError: `FILTER_COLUMN_MISSING`.
        """
        sources = {a.target.name: a.source for a in self.how.plan.actions}
        for name in tree_of(spec, spec.where or "").columns:
            spelled = self.table_schema.spelled(name)
            if spelled is None or sources.get(spelled) is not None or are_deletes(op):
                continue
            raise FatalError(
                FILTER_COLUMN_MISSING,
                f"{spec.table}: the row filter needs the column {name!r}, which files lack; nothing was written",
                where=self.group.source[0].as_py() if self.group.rows else "",
                remedy="deliver the column, or change `where` in the metadata row",
            )

    def _expected(
        self, rows: pa.Table, problems: Sequence[RowProblem], outside: Mask
    ) -> tuple[list[RowProblem], dict[str, Tally]]:
        sound = self._sound(problems)
        inside = sound if outside is None else sound & ~outside
        return checked(rows, self.table_schema, inside, replayed=self.group.replayed)

    def _sound(self, problems: Sequence[RowProblem]) -> np.ndarray:
        """Rows without a problem."""
        sound = all_true(self.group.rows)
        for problem in problems:
            if problem.where is not None:
                sound &= ~problem.where
        return sound

    def _op(self) -> pa.Array:
        column = self.how.operations
        if column is None:
            delivered = self._columns.nulls(STRING)
        else:
            delivered = pc.utf8_upper(pc.utf8_trim(_text(self.group.columns[column], self.how.types[column]), BLANKS))
        if self.how.kind == "load":
            usual = pc.is_in(pc.fill_null(delivered, ""), value_set=pa.array(["", "I", "R"]))
            return pc.if_else(usual, "R", delivered)
        if self.how.dialect.missing_op == "insert":
            return pc.if_else(pc.equal(pc.fill_null(delivered, ""), ""), "I", delivered)
        return delivered

    def _row_problems(self, op: pa.Array, values: Sequence[pa.Array], deletes: Mask) -> list[RowProblem]:
        """Errors regardless of values: malformed line, no text, unknown operation, null key, change of an append-only
        table.
        """
        known = ["R"] if self.how.kind == "load" else [*_OPERATIONS]
        known += [TRUNCATE] if self._may_truncate else []
        known += [LOADED] if self._may_be_loaded else []
        problems = []
        if self.group.malformed is not None:
            where = mask_of(self.group.malformed.is_valid())
            problems.append(RowProblem(where, ROW_MALFORMED, None, self.how.dialect.malformed))
        problems += self._columns.encoding_problems(deletes)
        unknown = mask_of(pc.invert(pc.is_in(op, value_set=pa.array(known))))
        column = self.how.dialect.op_column
        reason = f"not an operation: one of {self.how.dialect.operations}"
        problems.append(RowProblem(unknown, OP_UNKNOWN, column, reason))
        for target, value in zip(self.table_schema.data, values, strict=True):
            if target.name in self.table_schema.keys:
                problems += self._key_problems(target.name, target.type, value)
        if self.table_schema.spec.partition_by:
            problems += self._partition_problems(values, deletes)
        if not self.table_schema.keys:
            where = mask_of(pc.is_in(op, value_set=pa.array(["U", "D"])))
            reason = "an update or delete in a table without keys"
            problems.append(RowProblem(where, APPEND_ONLY_CHANGE, None, reason))
        return problems

    def _partition_problems(self, values: Sequence[pa.Array], deletes: Mask) -> list[RowProblem]:
        """Texts that no partition can hold. A hard delete needs no partition."""
        spec, reason = self.table_schema.spec, "a text that no partition can hold: empty, too long, or Hive's for null"
        partitions = self.table_schema.named(spec.partition_by)
        exempt = deletes if spec.delete == "hard" else None
        return [
            RowProblem(but(mask_of(unfit_texts(value, c.name)), exempt), PARTITION_VALUE_REFUSED, c.name, reason)
            for c, value in zip(self.table_schema.data, values, strict=True)
            if c.name in partitions and c.type == STRING
        ]

    def _key_problems(self, key: str, kind: SqlType, value: pa.Array) -> list[RowProblem]:
        source = next(a.source for a in self.how.plan.actions if a.target.name == key)
        empty = all_true(self.group.rows) if source is None else mask_of(self.group.columns[source].is_null())
        return [
            RowProblem(empty, KEY_NULL, key, "a part of the key is null"),
            RowProblem(mask_of(value.is_null()), CAST_FAILED, key, f"the key doesn't fit {kind}"),
        ]

    def _image_problems(self, rows: pa.Table, deletes: Mask) -> list[RowProblem]:
        """Before images that can't be a key: whose row the change moves is not known."""
        return [
            RowProblem(but(image.misfit, deletes), CAST_FAILED, column, f"the key before the change doesn't fit {key}")
            for key, column in self.table_schema.before_of_key.items()
            if (image := before_image(rows, self.table_schema, key)) is not None
        ]

    def _sequence_problems(self, sequence: pa.Array, unparsable: Mask) -> list[RowProblem]:
        if self.how.kind == "load":
            return []
        by = ", ".join(self.table_schema.sequence)
        missing = mask_of(sequence.is_null())
        if len(self.table_schema.sequence) > 1:
            for part in sequence.flatten():
                missing = either(missing, mask_of(part.is_null()))
        return [
            RowProblem(
                unparsable, SEQUENCE_UNPARSABLE, by, f"the sequence doesn't fit {self.table_schema.sequence_type}"
            ),
            RowProblem(missing, SEQUENCE_NULL, by, self._without_sequence()),
        ]

    def _without_sequence(self) -> str:
        """Why changes of this group have no sequence."""
        lacking = [repr(column) for column in self.table_schema.sequence if match(self.how.names, column) is None]
        return "a change without a sequence" + (f": its file has no column {', '.join(lacking)}" if lacking else "")

    def _sequence(self) -> tuple[pa.Array, Mask]:
        """The sequence (null for full-load rows) and where a delivered one doesn't fit its type."""
        target = parse_type(self.table_schema.sequence_type)
        if self.how.kind == "load" or not self.table_schema.sequence:
            return self._columns.nulls(target), None
        if len(self.table_schema.sequence) == 1:
            fitted = self._sequence_part(self.table_schema.sequence[0], target)
            return fitted.values, fitted.misfit
        fields = cast("StructType", target).fields  # several columns make a struct
        parts = [self._sequence_part(c, f.type) for c, f in zip(self.table_schema.sequence, fields, strict=True)]
        misfit: Mask = None
        for part in parts:
            misfit = either(misfit, part.misfit)
        kind = arrow_type(target)
        return pa.StructArray.from_arrays([p.values for p in parts], fields=list(kind)), misfit

    def _sequence_part(self, column: str, target: SqlType) -> Fitted:
        name = match(self.how.names, column)
        if name is None or str(self.how.types[name]) == "void":
            return Fitted(self._columns.nulls(target))
        if target == STRING:
            return sequence_text(self._text(name), column, self.table_schema)
        raw, source = self._columns.raw(name), self.how.types[name]
        value = _without_blanks(raw.values) if source == STRING else raw.values
        fitted = Fitted(value) if source == target else self._columns.fitted(value, source, target)
        if source != STRING and fitted.misfit is not None:
            self._refuse(column, source, target, fitted.misfit)
        reduced = either(raw.reduced, fitted.reduced)
        if reduced is not None and self.how.kind == "change" and reduced.any():
            self._refuse_digits(column, reduced)
        return fitted

    def _text(self, column: str) -> pa.Array:
        """A file's column as text, times with all of their digits."""
        if column in self.group.past:
            return nano_text(self.group.columns[column], self.group.past[column])
        value, source = self._columns.raw(column).values, self.how.types[column]
        return _without_blanks(value) if source == STRING else self._columns.fitted(value, source, STRING).values

    def _ordered_texts(self) -> dict[str, pa.Array]:
        """Sequence columns that are kept as text, as they came."""
        columns = (c for c in self.table_schema.text_sequence if c in self.table_schema.ordered_text)
        delivered = {column: match(self.how.names, column) for column in columns}
        return {c: self._text(f) for c, f in delivered.items() if f is not None and str(self.how.types[f]) != "void"}

    def _forms(self, values: pa.Array, bad: Sequence[int]) -> Forms:
        """Form to the least text of it in a good row, and its file."""
        kept = np.delete(np.arange(len(values)), list(bad))
        text, file = values.take(kept), self.group.source.take(kept)
        rows = pa.table([forms(text), text, file], names=["form", "text", "file"])
        least = rows.filter(rows.column("form").is_valid()).group_by("form", use_threads=False)
        examples = least.aggregate([("text", "min"), ("file", "min")]).to_pylist()
        return {row["form"]: (row["text_min"], row["file_min"]) for row in examples}

    def _refuse_digits(self, column: str, reduced: np.ndarray) -> None:
        """Two changes within a microsecond would lose their order.

        Raises:
            FatalError: `SEQUENCE_PRECISION`.
        """
        spec = self.table_schema.spec
        raise FatalError(
            SEQUENCE_PRECISION,
            f"{spec.table}: {column} orders changes and has times with digits past the microsecond, which a timestamp "
            f"can't hold (in {int(reduced.sum())} rows here); nothing was written",
            where=self.group.source[int(np.flatnonzero(reduced)[0])].as_py(),
            remedy=f"declare `options: {{types: {{{column}: string}}}}`, under which `_gddl.sequence` is text with all "
            f"digits, and {rebuild_of(spec)} if changes were loaded",
        )

    def _refuse(self, column: str, source: SqlType, target: SqlType, misfit: np.ndarray) -> None:
        """A change that only its type keeps out is no bad row: all newer ones would follow it into the quarantine.

        Raises:
            FatalError: `SEQUENCE_TYPE`.
        """
        file = self.group.source[int(np.flatnonzero(misfit)[0])].as_py()
        raise FatalError(
            SEQUENCE_TYPE,
            f"{self.table_schema.spec.table}: {column} comes as {source}, with values that {target}, the type of the "
            "sequences so far, can't hold; nothing was written",
            where=file,
            remedy=f"deliver it as {target}, or name another column in `sequence_by`, and "
            f"{rebuild_of(self.table_schema.spec)}",
        )

    def _struct(self, op: pa.Array, sequence: pa.Array) -> pa.Array:
        count = self.group.rows
        applied = pa.scalar(datetime.fromisoformat(self.stamp.applied_at), pa.timestamp("us", "UTC"))
        values = {
            "sequence": sequence,
            "op": op,
            "commit_ts": self._commit_ts(),
            "source_file": self.group.source,
            "position": self._positions(sequence),
            "batch_id": pa.repeat(self.stamp.batch_id, count),
            "generation": self._generation(sequence),
            "applied_at": pa.repeat(applied, count),
            "schema": pa.repeat(pa.scalar(self.how.schema_id, pa.int32()), count),
        }
        kind = arrow_type(parse_type(self.table_schema.gddl_type))
        return pa.StructArray.from_arrays([values[f.name] for f in kind], fields=list(kind))

    def _positions(self, sequence: pa.Array) -> pa.Array:
        """With runs where equal rows are told from those that a service sends again by these alone."""
        schema, group = self.table_schema, self.group
        if schema.keys or not schema.one_change or self.how.kind == "load" or group.replayed:
            return group.position
        return with_runs(group.position, group.source, sequence)

    def _marked(self, rows: pa.Table, bad: tuple[int, ...]) -> pa.Table:
        """Changes with a key whose place in the file has rows that are put aside."""
        schema = self.table_schema
        if not bad or not schema.keys or not schema.shared_places or self.how.kind == "load" or self.group.replayed:
            return rows
        gddl, aside = gddl_fields(rows), all_false(self.group.rows)
        aside[list(bad)] = True
        places = with_marks(gddl["position"], gddl["source_file"], gddl["sequence"], aside)
        return with_gddl(rows, position=places)

    def _generation(self, sequence: pa.Array) -> pa.Array:
        openings = self.table_schema.openings if self.how.kind == "change" else ()
        if not openings:
            return self.group.generation
        return generations(self.group.generation, sequence, self._commit_ts(), openings)

    def _commit_ts(self) -> pa.Array:
        target = ScalarType("timestamp")
        for candidate in self.how.dialect.commit_times:
            column = match(self.how.names, candidate)
            if column is not None:
                value, kind = self._columns.raw(column).values, self.how.types[column]
                if str(kind) in ("void", "date", "timestamp", "timestamp_ntz"):
                    return recast(value, arrow_type(target))
                return self._columns.fitted(value, kind, target).values
        return self._columns.nulls(target)


def stored_sequence(values: pa.Array, source: SqlType, column: str, target: SqlType, schema: TableSchema) -> Fitted:
    """A sequence column of stored changes in the type that the sequence now has."""
    if target == STRING:
        text = _without_blanks(values) if source == STRING else fit(values, source, STRING).values
        return sequence_text(text, column, schema)
    values = _without_blanks(values) if source == STRING else values
    return Fitted(values) if source == target else fit(values, source, target, schema.spec.sub_microseconds)


def sequence_text(text: pa.Array, column: str, schema: TableSchema) -> Fitted:
    """Text of a sequence column in the form in which the table keeps it."""
    return Fitted(normal_form(text) if column in schema.ordered_text else text)


def _without_blanks(text: pa.Array) -> pa.Array:
    """Text of nothing but blanks is none."""
    blank = pc.fill_null(pc.equal(pc.utf8_trim(text, BLANKS), ""), False)
    return pc.if_else(blank, pa.scalar(None, pa.string()), text) if pc.any(blank).as_py() else text


def are_deletes(op: pa.Array) -> bool:
    """Whether a column of text that has the operations of changes has none but deletes and truncates."""
    values = pc.utf8_upper(pc.utf8_trim(op.cast(pa.string()), BLANKS)).drop_null()
    return not pc.any(pc.invert(pc.is_in(values, value_set=pa.array(["D", TRUNCATE])))).as_py()


def _text(values: pa.Array, kind: SqlType) -> pa.Array:
    if kind == STRING:
        return values
    return each(values, lambda value: as_text(value, kind), pa.string())


def _first_of(problems: Sequence[RowProblem], rows: int) -> tuple[tuple[int, ...], tuple[RowProblem, ...]]:
    """Numbers of the rows with a problem, and the first problem of each."""
    first = np.full(rows, -1)
    for number, problem in enumerate(problems):
        if problem.where is not None:
            first[(first < 0) & problem.where] = number
    bad = tuple(int(row) for row in np.flatnonzero(first >= 0))
    return bad, tuple(problems[first[row]] for row in bad)


def _set_in_good(columns: Sequence[pa.Array], bad: Sequence[int]) -> int:
    """Values of a column (or none) that are not null, outside bad rows."""
    return sum(int(np.delete(np.asarray(column.is_valid()), bad).sum()) for column in columns)
