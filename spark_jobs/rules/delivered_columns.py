"""The columns of a group of files as the table takes them: declared types, masks, misfits, rescued values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import CAST_FAILED, KEY_TYPE, TEXT_NOT_UTF8
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import (
    SqlType,
    parse_type,
)
from spark_jobs.plan.schema_evolution import STRING, ColumnAction
from spark_jobs.plan.sharding import refreshed
from spark_jobs.rules.arrays import arrow_type, is_text, recast
from spark_jobs.rules.convert import Fitted, Mask, but, either, fit, mask_of, to_micros, within_years
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import RawGroup
from spark_jobs.rules.masks import masked
from spark_jobs.rules.texts import finer_text, json_writer, rows_json

_NOTHING: tuple[tuple[str, pa.Array, SqlType], ...] = ()


@dataclass(frozen=True)
class RowProblem:
    """What is wrong with the rows of a mask. Never the value: it may be masked."""

    where: Mask
    code: str
    column: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlannedColumns:
    """The target's columns, computed from delivered rows.

    Attributes:
        values: in the order of the target's columns.
        rescued: name, values and type of what goes into the rescued column.
        reduced: times that were cut or rounded to microseconds.
    """

    values: tuple[pa.Array, ...]
    problems: tuple[RowProblem, ...] = ()
    rescued: tuple[tuple[str, pa.Array, SqlType], ...] = ()
    reduced: int = 0


@dataclass(frozen=True)
class DeliveredColumns:
    """The columns of one group."""

    group: RawGroup
    how: FileGroup

    def nulls(self, kind: SqlType) -> pa.Array:
        return pa.nulls(self.group.rows, arrow_type(kind))

    def raw(self, column: str) -> Fitted:
        """A file's column as delivered, times in microseconds; those outside the years 1 to 9999 are misfits."""
        fitted = within_years(self.group.columns[column])
        if column not in self.group.past:
            return fitted
        whole = to_micros(fitted.values, self.group.past[column], self.how.sub_microseconds)
        return Fitted(whole.values, either(fitted.misfit, whole.misfit), whole.reduced)

    def delivered(self, column: str) -> tuple[Fitted, SqlType]:
        """A file's column after declared types and masks: value, misfit, type."""
        result, kind = self.raw(column), self.how.types[column]
        again = self.group.already_masked and column in self.how.masks
        if column in self.how.declared and not again:
            target = parse_type(self.how.declared[column])
            if target == STRING and column in self.group.past:
                result, kind = self._with_all_digits(column, kind), STRING
            result, kind = self.fitted(result.values, kind, target) if kind != target else result, target
        method = self.how.masks.get(column)
        if method is None or self.group.already_masked:
            return result, kind
        values = masked(result.values, kind, method)
        if method == "null":
            return Fitted(values, result.misfit), kind
        return Fitted(self._with_masked_bytes(column, values), result.misfit), STRING

    def _with_all_digits(self, column: str, kind: SqlType) -> Fitted:
        """Times with digits past the microsecond as text, which has room for them."""
        whole = within_years(self.group.columns[column])
        text = self.fitted(whole.values, kind, STRING).values
        return Fitted(finer_text(text, self.group.past[column]), whole.misfit)

    def _with_masked_bytes(self, column: str, values: pa.Array) -> pa.Array:
        """Hashes of text that is not UTF-8 are those of its bytes."""
        invalid = self.group.invalid.get(column)
        if invalid is None or not is_text(invalid.type):
            return values
        return pc.coalesce(values, masked(invalid, STRING, self.how.masks[column]))

    def hashed(self, column: str, at: pa.Array) -> pa.Array:
        """Some values of a column, hashed as tables have them; those that don't fit a declared type as delivered."""
        method, (good, _) = self.how.masks[column], self.delivered(column)
        raw = masked(self.raw(column).values.take(at), self.how.types[column], method)
        values = pc.coalesce(good.values.take(at), raw)
        invalid = self.group.invalid.get(column)
        return values if invalid is None else pc.coalesce(values, masked(invalid.take(at), STRING, method))

    def fitted(self, values: pa.Array, source: SqlType, target: SqlType) -> Fitted:
        return fit(values, source, target, self.how.sub_microseconds)

    def encoding_problems(self, deletes: Mask) -> list[RowProblem]:
        """Rows with text that is not UTF-8 in a column that is needed; of a delete, key, operation and sequence are."""
        problems = []
        for column, values in self.group.invalid.items():
            if column in self.how.used and column not in self.how.masks:
                where = mask_of(values.is_valid())
                where = where if column in self.how.needed else but(where, deletes)
                problems.append(RowProblem(where, TEXT_NOT_UTF8, column, "the text is not UTF-8"))
        return problems

    def values(self, deletes: Mask) -> PlannedColumns:
        columns = self.planned(self.how.plan.actions, deletes)
        rescued = list(columns.rescued)
        for column in self.how.plan.rescued:
            values, kind = self.delivered(column)
            rescued.append((column, values.values, kind))
        return replace(columns, rescued=tuple(rescued))

    def planned(self, actions: Sequence[ColumnAction], deletes: Mask) -> PlannedColumns:
        """Compute the target's columns by the actions of the schema's plan.

        Raises:
            FatalError: `KEY_TYPE`: times of a key have digits past the microsecond.
        """
        parts = [self._planned(action, deletes) for action in actions]
        for action, part in zip(actions, parts, strict=True):
            if part.reduced and action.target.name.lower() in self.how.exact:
                raise self._inexact(action.target.name, part.reduced)
        return PlannedColumns(
            values=tuple(v for part in parts for v in part.values),
            problems=tuple(p for part in parts for p in part.problems),
            rescued=tuple(r for part in parts for r in part.rescued),
            reduced=sum(part.reduced for part in parts),
        )

    def _planned(self, action: ColumnAction, deletes: Mask) -> PlannedColumns:
        target, source = action.target.type, action.source
        if source is None or source not in self.how.types or action.source_type is None:
            return PlannedColumns(values=(self.nulls(target),))
        original, kind = self.delivered(source)
        where, texts = but(original.misfit, deletes), _NOTHING
        if where is not None and self.how.rescues_text(action):
            where, texts = None, ((source, _only(self.raw(source).values, original.misfit), STRING),)
        declared = RowProblem(where, CAST_FAILED, source, "the value doesn't fit its type")
        if action.how != "fit":
            rescued = ((source, original.values, kind),) if action.keep_original else texts
            values = recast(original.values, arrow_type(target))
            return PlannedColumns(
                values=(values,), problems=(declared,), rescued=rescued, reduced=_count(original.reduced)
            )
        converted = self._fit(action, original.values, kind)
        reduced = _count(either(original.reduced, converted.reduced))
        if action.misfit == "rescue":
            rescued = (*texts, (source, _only(original.values, converted.misfit), kind))
            return PlannedColumns(values=(converted.values,), problems=(declared,), rescued=rescued, reduced=reduced)
        reason = f"a value of type {kind} doesn't fit {target}"
        misfit = RowProblem(but(converted.misfit, deletes), CAST_FAILED, source, reason)
        return PlannedColumns(values=(converted.values,), problems=(declared, misfit), reduced=reduced)

    def _inexact(self, column: str, rows: int) -> FatalError:
        """Two keys within a microsecond would be one row."""
        spec = self.how.dialect.spec
        return FatalError(
            KEY_TYPE,
            f"{spec.table}: the key column {column} has times with digits past the microsecond, which a timestamp "
            f"can't hold (in {rows} rows here); nothing was written",
            where=self.group.source[0].as_py(),
            remedy=f"declare `options: {{types: {{{column}: string}}}}`, as which it keeps all digits, and "
            f"{refreshed(spec, f'run `gddl reload --from-files --table {spec.table}`')} if rows were loaded; or set "
            "`sub_microseconds: quarantine`",
        )

    def _fit(self, action: ColumnAction, value: pa.Array, source: SqlType) -> Fitted:
        if action.convertible:
            return self.fitted(value, source, action.target.type)
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


def _count(where: Mask) -> int:
    return 0 if where is None else int(where.sum())


def _only(values: pa.Array, where: Mask) -> pa.Array:
    if where is None:
        return pa.nulls(len(values), values.type)
    return pc.if_else(where, values, pa.scalar(None, values.type))
