"""A group's raw columns on their way into the table's: declared types, masks, the schema's plan, rescued values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.spec import MaskMethod
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.roles import declared_types
from spark_jobs.plan.schema import ColumnAction, GroupPlan
from spark_jobs.plan.types import ScalarType, SqlType, parse_type
from spark_jobs.rules.arrays import recast
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.convert import Fitted, Mask, but, fit, from_nanos, mask_of, masked
from spark_jobs.rules.read import RawGroup
from spark_jobs.rules.value_text import json_writer, rows_json

STRING = ScalarType("string")
_TEXT = json_writer(STRING)


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
    dialect: Dialect
    masks: Mapping[str, MaskMethod] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.raw)

    @cached_property
    def types(self) -> Mapping[str, SqlType]:
        return {n: parse_type(kind) for n, kind in self.raw}

    @cached_property
    def declared(self) -> Mapping[str, str]:
        return declared_types(dict(self.raw), self.dialect)


@dataclass(frozen=True)
class RowProblem:
    """What is wrong with the rows of a mask. Never the value: it may be masked."""

    where: Mask
    code: str
    column: str | None
    reason: str


@dataclass(frozen=True)
class DeliveredColumns:
    """The columns of one group."""

    group: RawGroup
    how: GroupDecoding

    def nulls(self, kind: SqlType) -> pa.Array:
        return pa.nulls(self.group.rows, arrow_type(kind))

    def raw(self, column: str) -> Fitted:
        """A file's column as delivered, nanoseconds made a timestamp."""
        value = self.group.columns[column]
        return from_nanos(value, self.how.types[column]) if column in self.group.nanos else Fitted(value)

    def delivered(self, column: str) -> tuple[Fitted, SqlType]:
        """A file's column after declared types and masks: value, misfit, type."""
        found, kind = self.raw(column), self.how.types[column]
        again = self.group.already_masked and column in self.how.masks
        if column in self.how.declared and not again:
            target = parse_type(self.how.declared[column])
            found, kind = fit(found.values, kind, target) if kind != target else found, target
        method = self.how.masks.get(column)
        if method is None or self.group.already_masked:
            return found, kind
        return Fitted(masked(found.values, kind, method), found.misfit), kind if method == "null" else STRING

    def values(self, deletes: Mask) -> tuple[list[pa.Array], list[RowProblem], list[tuple[str, pa.Array, SqlType]]]:
        values, problems, rescued = self.planned(self.how.plan.actions, deletes)
        for column in self.how.plan.rescued:
            found, kind = self.delivered(column)
            rescued.append((column, found.values, kind))
        return values, problems, rescued

    def planned(
        self, actions: Sequence[ColumnAction], deletes: Mask
    ) -> tuple[list[pa.Array], list[RowProblem], list[tuple[str, pa.Array, SqlType]]]:
        """Values in target order, problems, and values for the rescued column."""
        values: list[pa.Array] = []
        problems: list[RowProblem] = []
        rescued: list[tuple[str, pa.Array, SqlType]] = []
        for action in actions:
            target = action.target.type
            source = action.source
            if source is None or source not in self.how.types or action.source_type is None:
                values.append(self.nulls(target))
                continue
            found, kind = self.delivered(source)
            where = but(found.misfit, deletes)
            problems.append(RowProblem(where, "CAST_FAILED", source, "the value doesn't fit its declared type"))
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
                problems.append(RowProblem(but(converted.misfit, deletes), "CAST_FAILED", source, reason))
        return values, problems, rescued

    def _fit(self, action: ColumnAction, value: pa.Array, source: SqlType) -> Fitted:
        if action.convertible:
            return fit(value, source, action.target.type)
        return Fitted(self.nulls(action.target.type), mask_of(value.is_valid()))

    def rescued_json(self, rescued: Sequence[tuple[str, pa.Array, SqlType]]) -> pa.Array:
        if not rescued:
            return self.nulls(STRING)
        path = json_writer(STRING)
        texts = rows_json(rescued, nulls=False)
        files = self.group.source.to_pylist()
        full = [
            None if text == "{}" else f'{text[:-1]},"_file_path":{path(file)}}}'
            for text, file in zip(texts, files, strict=True)
        ]
        return pa.array(full, pa.string())

    def records(self, bad: Sequence[int]) -> tuple[str, ...]:
        """The original rows as JSON, masked columns masked."""
        if not bad:
            return ()
        at = pa.array(bad, pa.int64())
        columns = []
        for column, kind in self.how.types.items():
            method = self.how.masks.get(column)
            values, shown = self.group.columns[column].take(at), kind
            if method is not None and not self.group.already_masked:
                values = masked(self.raw(column).values.take(at), kind, method)
                shown = kind if method == "null" else STRING
            elif column in self.group.nanos:
                shown = ScalarType("bigint")
            columns.append((column, values, shown))
        lines = self._lines().take(at).to_pylist()
        found = zip(rows_json(columns, nulls=True), lines, strict=True)
        return tuple(row if line is None else f'{{"line":{_TEXT(line)}}}' for row, line in found)

    def _lines(self) -> pa.Array:
        """Original texts that a dialect could make no row of; nobody can mask them, so that masks keep them out."""
        translated = any(file.translated for file in self.group.files)
        if self.group.malformed is None or not translated or self.how.dialect.spec.mask:
            return pa.nulls(self.group.rows, pa.string())
        return self.group.malformed


def _only(values: pa.Array, where: Mask) -> pa.Array:
    if where is None:
        return pa.nulls(len(values), values.type)
    return pc.if_else(pa.array(where), values, pa.scalar(None, values.type))
