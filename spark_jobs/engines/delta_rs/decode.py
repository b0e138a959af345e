"""Raw columns of a group of files into canonical changes, each good or with the first thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.dms import DmsOptions
from airflow_gddl.contract.spec import MaskMethod
from spark_jobs.dialects import dms
from spark_jobs.engines.delta_rs.arrays import recast
from spark_jobs.engines.delta_rs.arrow_schema import arrow_type
from spark_jobs.engines.delta_rs.convert import Fitted, Mask, but, either, fit, from_nanos, mask_of, masked
from spark_jobs.engines.delta_rs.read import RawGroup
from spark_jobs.engines.delta_rs.value_text import as_text, json_writer, rows_json
from spark_jobs.engines.shape import GDDL, Shape
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.schema import ColumnAction, GroupPlan
from spark_jobs.plan.types import ScalarType, SqlType, StructType, parse_type

_STRING = ScalarType("string")
_OPERATIONS = ("I", "U", "D")


@dataclass(frozen=True, kw_only=True)
class GroupDecoding:
    """Everything that turns the raw rows of one group into changes.

    Attributes:
        raw: (name, SQL type) of the file's columns.
        kind: `load` or `change`.
        plan: how delivered columns reach the table; `before` the same for before images.
        masks: file column to method; applied before anything is written, quarantine included.
        schema_id: index into the ledger's schemas.
    """

    raw: tuple[tuple[str, str], ...]
    kind: str
    plan: GroupPlan
    before: GroupPlan
    schema_id: int
    options: DmsOptions
    masks: Mapping[str, MaskMethod] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.raw)

    @cached_property
    def types(self) -> Mapping[str, SqlType]:
        return {n: parse_type(kind) for n, kind in self.raw}

    @cached_property
    def declared(self) -> Mapping[str, str]:
        return dms.declared_types(dict(self.raw), self.options)


@dataclass(frozen=True)
class Problem:
    """What is wrong with the rows of a mask. Never the value: it may be masked."""

    where: Mask
    code: str
    column: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class DecodedGroup:
    """Attributes:
    rows: columns of the change table and `_gddl`, good rows and bad.
    bad: numbers of the bad rows, with `problems` and `records` (JSON of the original) of each.
    """

    kind: str
    rows: pa.Table
    bad: tuple[int, ...] = ()
    problems: tuple[Problem, ...] = ()
    records: tuple[str, ...] = ()

    @property
    def good(self) -> pa.Table:
        if not self.bad:
            return self.rows
        kept = np.ones(self.rows.num_rows, dtype=bool)
        kept[list(self.bad)] = False
        return self.rows.filter(pa.array(kept))


def decode(group: RawGroup, how: GroupDecoding, shape: Shape, plan: BatchPlan) -> DecodedGroup:
    return _Decoder(group, how, shape, plan).decode()


@dataclass(frozen=True)
class _Decoder:
    group: RawGroup
    how: GroupDecoding
    shape: Shape
    plan: BatchPlan

    def decode(self) -> DecodedGroup:
        op = self._op()
        deletes = mask_of(pc.fill_null(pc.equal(op, "D"), False)) if self.how.kind == "change" else None
        values, misfits, rescued = self._values(deletes)
        before, before_misfits, _ = self._planned(self.how.before.actions, None)
        sequence, unparsable = self._sequence()
        problems = [*self._row_problems(op, values), *self._sequence_problems(sequence, unparsable), *misfits,
                    *before_misfits]  # fmt: skip
        bad, found = _first_of([p for p in problems if p.where is not None], self.group.rows)
        columns = [*values, *([self._rescued_json(rescued)] if self.shape.rescues else []), *before]
        rows = pa.Table.from_arrays([*columns, self._struct(op, sequence)], names=[*self.shape.change_columns, GDDL])
        return DecodedGroup(kind=self.how.kind, rows=rows, bad=bad, problems=found, records=self._records(bad))

    def _all(self, value: bool) -> Mask:
        return np.full(self.group.rows, value) if value and self.group.rows else None

    def _nulls(self, kind: SqlType) -> pa.Array:
        return pa.nulls(self.group.rows, arrow_type(kind))

    def _op(self) -> pa.Array:
        found = dms.match(self.how.names, self.how.options.op_column)
        if found is None:
            delivered = self._nulls(_STRING)
        else:
            delivered = pc.utf8_upper(pc.utf8_trim(_text(self.group.columns[found], self.how.types[found]), " "))
        if self.how.kind == "load":
            usual = pc.is_in(pc.fill_null(delivered, ""), value_set=pa.array(["", "I", "R"]))
            return pc.if_else(usual, "R", delivered)
        if self.how.options.missing_op == "insert":
            return pc.if_else(pc.equal(pc.fill_null(delivered, ""), ""), "I", delivered)
        return delivered

    def _row_problems(self, op: pa.Array, values: Sequence[pa.Array]) -> list[Problem]:
        """Wrong whatever the values: malformed line, unknown operation, null key, change of an append-only table."""
        known = pa.array(("R",) if self.how.kind == "load" else _OPERATIONS)
        problems = []
        if self.group.malformed is not None:
            where = mask_of(self.group.malformed.is_valid())
            problems.append(Problem(where, "ROW_MALFORMED", None, "the line has more or fewer fields than columns"))
        unknown = mask_of(pc.invert(pc.is_in(op, value_set=known)))
        column = self.how.options.op_column
        problems.append(Problem(unknown, "OP_UNKNOWN", column, "not an operation: one of I, U, D"))
        for target, value in zip(self.shape.data, values, strict=True):
            if target.name in self.shape.keys:
                problems += self._key_problems(target.name, target.type, value)
        if not self.shape.keys:
            where = mask_of(pc.is_in(op, value_set=pa.array(["U", "D"])))
            reason = "an update or delete in a table without keys"
            problems.append(Problem(where, "APPEND_ONLY_CHANGE", None, reason))
        return problems

    def _key_problems(self, key: str, kind: SqlType, value: pa.Array) -> list[Problem]:
        source = next(a.source for a in self.how.plan.actions if a.target.name == key)
        empty = self._all(True) if source is None else _null_mask(self.group.columns[source])
        return [
            Problem(empty, "KEY_NULL", key, "a part of the key is null"),
            Problem(_null_mask(value), "CAST_FAILED", key, f"the key doesn't fit {kind}"),
        ]

    def _sequence_problems(self, sequence: pa.Array, unparsable: Mask) -> list[Problem]:
        if self.how.kind == "load":
            return []
        by = ", ".join(self.shape.sequence)
        missing = _null_mask(sequence)
        if len(self.shape.sequence) > 1:
            for part in sequence.flatten():
                missing = either(missing, _null_mask(part))
        return [
            Problem(unparsable, "SEQUENCE_UNPARSABLE", by, f"the sequence doesn't fit {self.shape.sequence_type}"),
            Problem(missing, "SEQUENCE_NULL", by, "a change without a sequence"),
        ]

    def _sequence(self) -> tuple[pa.Array, Mask]:
        """The sequence (null for full-load rows) and where a delivered one doesn't fit its type."""
        target = parse_type(self.shape.sequence_type)
        if self.how.kind == "load" or not self.shape.sequence:
            return self._nulls(target), None
        if len(self.shape.sequence) == 1:
            fitted = self._sequence_part(self.shape.sequence[0], target)
            return fitted.values, fitted.misfit
        fields = cast("StructType", target).fields  # several columns make a struct
        parts = [self._sequence_part(c, f.type) for c, f in zip(self.shape.sequence, fields, strict=True)]
        misfit: Mask = None
        for part in parts:
            misfit = either(misfit, part.misfit)
        kind = arrow_type(target)
        return pa.StructArray.from_arrays([p.values for p in parts], fields=list(kind)), misfit

    def _sequence_part(self, column: str, target: SqlType) -> Fitted:
        found = dms.match(self.how.names, column)
        if found is None:
            return Fitted(self._nulls(target))
        value, source = self._raw(found).values, self.how.types[found]
        if source == _STRING:
            blank = pc.fill_null(pc.equal(pc.utf8_trim(value, " "), ""), False)
            if pc.any(blank).as_py():
                value = pc.if_else(blank, pa.scalar(None, pa.string()), value)
        if source == target:
            return Fitted(value)
        return Fitted(self._nulls(target)) if str(source) == "void" else fit(value, source, target)

    def _raw(self, column: str) -> Fitted:
        """A file's column as delivered, nanoseconds made a timestamp."""
        value = self.group.columns[column]
        return from_nanos(value, self.how.types[column]) if column in self.group.nanos else Fitted(value)

    def _delivered(self, column: str) -> tuple[Fitted, SqlType]:
        """A file's column after declared types and masks: value, misfit, type."""
        found, kind = self._raw(column), self.how.types[column]
        again = self.group.already_masked and column in self.how.masks
        if column in self.how.declared and not again:
            target = parse_type(self.how.declared[column])
            found, kind = fit(found.values, kind, target) if kind != target else found, target
        method = self.how.masks.get(column)
        if method is None or self.group.already_masked:
            return found, kind
        return Fitted(masked(found.values, kind, method), found.misfit), kind if method == "null" else _STRING

    def _values(self, deletes: Mask) -> tuple[list[pa.Array], list[Problem], list[tuple[str, pa.Array, SqlType]]]:
        values, problems, rescued = self._planned(self.how.plan.actions, deletes)
        for column in self.how.plan.rescued:
            found, kind = self._delivered(column)
            rescued.append((column, found.values, kind))
        return values, problems, rescued

    def _planned(
        self, actions: Sequence[ColumnAction], deletes: Mask
    ) -> tuple[list[pa.Array], list[Problem], list[tuple[str, pa.Array, SqlType]]]:
        """Values in target order, problems, and values for the rescued column."""
        values: list[pa.Array] = []
        problems: list[Problem] = []
        rescued: list[tuple[str, pa.Array, SqlType]] = []
        for action in actions:
            target = action.target.type
            source = action.source
            if source is None or source not in self.how.types or action.source_type is None:
                values.append(self._nulls(target))
                continue
            found, kind = self._delivered(source)
            where = but(found.misfit, deletes)
            problems.append(Problem(where, "CAST_FAILED", source, "the value doesn't fit its declared type"))
            if action.how != "fit":
                values.append(recast(found.values, arrow_type(target)))
                if action.keep_original:
                    rescued.append((source, found.values, kind))
                continue
            converted = self._fit(action, found.values, kind)
            values.append(converted.values)
            if action.misfit == "rescue":
                rescued.append((source, _only(found.values, converted.misfit), kind))
            else:
                reason = f"a value of type {kind} doesn't fit {target}"
                problems.append(Problem(but(converted.misfit, deletes), "CAST_FAILED", source, reason))
        return values, problems, rescued

    def _fit(self, action: ColumnAction, value: pa.Array, source: SqlType) -> Fitted:
        if action.convertible:
            return fit(value, source, action.target.type)
        return Fitted(self._nulls(action.target.type), mask_of(value.is_valid()))

    def _rescued_json(self, rescued: Sequence[tuple[str, pa.Array, SqlType]]) -> pa.Array:
        if not rescued:
            return self._nulls(_STRING)
        path = json_writer(_STRING)
        texts = rows_json(rescued, nulls=False)
        files = self.group.source.to_pylist()
        full = [
            None if text == "{}" else f'{text[:-1]},"_file_path":{path(file)}}}'
            for text, file in zip(texts, files, strict=True)
        ]
        return pa.array(full, pa.string())

    def _records(self, bad: Sequence[int]) -> tuple[str, ...]:
        """The original rows as JSON, masked columns masked."""
        if not bad:
            return ()
        at = pa.array(bad, pa.int64())
        columns = []
        for column, kind in self.how.types.items():
            method = self.how.masks.get(column)
            values, shown = self.group.columns[column].take(at), kind
            if method is not None and not self.group.already_masked:
                values = masked(self._raw(column).values.take(at), kind, method)
                shown = kind if method == "null" else _STRING
            elif column in self.group.nanos:
                shown = ScalarType("bigint")
            columns.append((column, values, shown))
        return tuple(rows_json(columns, nulls=True))

    def _struct(self, op: pa.Array, sequence: pa.Array) -> pa.Array:
        count = self.group.rows
        applied = pa.scalar(datetime.fromisoformat(self.plan.planned_at), pa.timestamp("us", "UTC"))
        values = {
            "sequence": sequence,
            "op": op,
            "commit_ts": self._commit_ts(),
            "source_file": self.group.source,
            "position": self.group.position,
            "batch_id": pa.repeat(self.plan.batch_id, count),
            "generation": self.group.generation,
            "applied_at": pa.repeat(applied, count),
            "schema": pa.repeat(pa.scalar(self.how.schema_id, pa.int32()), count),
        }
        kind = arrow_type(parse_type(self.shape.gddl_type))
        return pa.StructArray.from_arrays([values[f.name] for f in kind], fields=list(kind))

    def _commit_ts(self) -> pa.Array:
        target = ScalarType("timestamp")
        for candidate in dms.commit_time_names(self.how.options):
            found = dms.match(self.how.names, candidate)
            if found is not None:
                value, kind = self._raw(found).values, self.how.types[found]
                if str(kind) in ("void", "date", "timestamp", "timestamp_ntz"):
                    return recast(value, arrow_type(target))
                return fit(value, kind, target).values
        return self._nulls(target)


def _text(values: pa.Array, kind: SqlType) -> pa.Array:
    if kind == _STRING:
        return values
    return pa.array([None if v is None else as_text(v, kind) for v in values.to_pylist()], pa.string())


def _null_mask(values: pa.Array) -> Mask:
    return mask_of(values.is_null()) if values.null_count else None


def _only(values: pa.Array, where: Mask) -> pa.Array:
    if where is None:
        return pa.nulls(len(values), values.type)
    return pc.if_else(pa.array(where), values, pa.scalar(None, values.type))


def _first_of(problems: Sequence[Problem], rows: int) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """Numbers of the rows with a problem, and the first problem of each."""
    first = np.full(rows, -1)
    for number, problem in enumerate(problems):
        if problem.where is not None:
            first[(first < 0) & problem.where] = number
    bad = tuple(int(row) for row in np.flatnonzero(first >= 0))
    return bad, tuple(problems[first[row]] for row in bad)
