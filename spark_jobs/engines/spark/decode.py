"""Raw rows of a group of files into canonical changes, each good or with the first thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.spec import MaskMethod
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.roles import declared_types, match
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.convert import Fitted, cast, fit, from_nanos, masked
from spark_jobs.engines.spark.read import FILE, GENERATION, MALFORMED, POSITION
from spark_jobs.engines.spark.sequence_text import normal_form
from spark_jobs.engines.spark.tables import spark_type
from spark_jobs.plan.schema import ColumnAction, GroupPlan
from spark_jobs.plan.types import ScalarType, SqlType, parse_type
from spark_jobs.table.table_schema import GDDL, RESCUED, TableSchema

ERROR, RECORD, KIND = f"{GDDL}__error", f"{GDDL}__record", f"{GDDL}__kind"
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
        already_masked: rows come from the quarantine, where they were masked.
        nanos: timestamps that come as whole nanoseconds.
        schema_id: index into the ledger's schemas.
        translated: the dialect made the rows; what `MALFORMED` holds is all there is of a row.
    """

    raw: tuple[tuple[str, str], ...]
    kind: str
    plan: GroupPlan
    before: GroupPlan
    schema_id: int
    dialect: Dialect
    masks: Mapping[str, MaskMethod] = field(default_factory=dict)
    already_masked: bool = False
    nanos: tuple[str, ...] = ()
    translated: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.raw)


@dataclass(frozen=True)
class Stamp:
    """What is the same for all rows of a batch."""

    batch_id: str
    applied_at: str


def decode(rows: DataFrame, how: GroupDecoding, table_schema: TableSchema, stamp: Stamp) -> DataFrame:
    """Columns of the change table, `_gddl`, `ERROR` (struct code, column, reason; null: good row), `RECORD`, `KIND`."""
    return _Decoder(how, table_schema, stamp).decode(rows)


@dataclass(frozen=True)
class _Decoder:
    how: GroupDecoding
    table_schema: TableSchema
    stamp: Stamp

    def decode(self, rows: DataFrame) -> DataFrame:
        op = self._op()
        deletes = op == "D"
        values, misfits, rescued = self._values(deletes)
        before, before_misfits, _ = self._planned(self.how.before.actions, F.lit(False))
        sequence, unparsable = self._sequence()
        error = F.coalesce(
            *self._row_errors(op, values), *self._sequence_errors(sequence, unparsable), *misfits, *before_misfits
        )
        columns = [value.alias(c.name) for c, value in zip(self.table_schema.data, values, strict=True)]
        if self.table_schema.rescues:
            columns.append(self._rescued_json(rescued).alias(RESCUED))
        columns += [value.alias(c.name) for c, value in zip(self.table_schema.before, before, strict=True)]
        return rows.select(
            *columns,
            self._struct(op, sequence).alias(GDDL),
            error.alias(ERROR),
            F.when(error.isNotNull(), self._record()).alias(RECORD),
            F.lit(self.how.kind).alias(KIND),
        )

    def _op(self) -> Column:
        found = match(self.how.names, self.how.dialect.op_column)
        delivered = F.lit(None).cast("string") if found is None else F.upper(F.trim(name(found).cast("string")))
        if self.how.kind == "load":
            usual = F.coalesce(delivered, F.lit("")).isin("", "I", "R")
            return F.when(usual, F.lit("R")).otherwise(delivered)
        if self.how.dialect.missing_op == "insert":
            return F.coalesce(F.when(delivered != "", delivered), F.lit("I"))
        return delivered

    def _row_errors(self, op: Column, values: list[Column]) -> list[Column]:
        """Wrong whatever the values: malformed line, unknown operation, null key, change of an append-only table."""
        known = ("R",) if self.how.kind == "load" else _OPERATIONS
        errors = [
            _problem(name(MALFORMED).isNotNull(), "ROW_MALFORMED", None, self.how.dialect.malformed),
            _problem(
                ~F.coalesce(op.isin(*known), F.lit(False)),
                "OP_UNKNOWN",
                self.how.dialect.op_column,
                f"not an operation: one of {self.how.dialect.operations}",
            ),
        ]
        for column, value in zip(self.table_schema.data, values, strict=True):
            if column.name in self.table_schema.keys:
                source = next(a.source for a in self.how.plan.actions if a.target.name == column.name)
                raw_null = F.lit(True) if source is None else name(source).isNull()
                errors.append(_problem(raw_null, "KEY_NULL", column.name, "a part of the key is null"))
                errors.append(
                    _problem(value.isNull(), "CAST_FAILED", column.name, f"the key doesn't fit {column.type}")
                )
        if not self.table_schema.keys:
            errors.append(
                _problem(op.isin("U", "D"), "APPEND_ONLY_CHANGE", None, "an update or delete in a table without keys")
            )
        return errors

    def _sequence_errors(self, sequence: Column | None, unparsable: Column) -> list[Column]:
        if self.how.kind == "load":
            return []
        by = ", ".join(self.table_schema.sequence)
        missing = F.lit(True) if sequence is None else F.lit(False)
        if sequence is not None:
            parts = (
                [sequence]
                if len(self.table_schema.sequence) == 1
                else [sequence[c] for c in self.table_schema.sequence]
            )
            for part in parts:
                missing = missing | part.isNull()
        return [
            _problem(
                unparsable, "SEQUENCE_UNPARSABLE", by, f"the sequence doesn't fit {self.table_schema.sequence_type}"
            ),
            _problem(missing, "SEQUENCE_NULL", by, "a change without a sequence"),
        ]

    def _sequence(self) -> tuple[Column | None, Column]:
        """The sequence (null for full-load rows) and whether a delivered one doesn't fit its type."""
        kind = spark_type(self.table_schema.sequence_type)
        if self.how.kind == "load" or not self.table_schema.sequence:
            return F.lit(None).cast(kind), F.lit(False)
        target = parse_type(self.table_schema.sequence_type)
        types = [target] if len(self.table_schema.sequence) == 1 else [f.type for f in target.fields]  # type: ignore[union-attr]  # a struct for several columns
        fitted = [self._sequence_part(c, t) for c, t in zip(self.table_schema.sequence, types, strict=True)]
        misfit = F.lit(False)
        for part in fitted:
            misfit = misfit | part.misfit
        if len(fitted) == 1:
            return fitted[0].value, misfit
        return F.struct(*(p.value.alias(c) for p, c in zip(fitted, self.table_schema.sequence, strict=True))), misfit

    def _sequence_part(self, column: str, target: SqlType) -> Fitted:
        found = match(self.how.names, column)
        if found is None:
            return Fitted(F.lit(None).cast(spark_type(str(target))), F.lit(False))
        value, source = self._raw(found)
        if source == _STRING:
            value = F.when(F.trim(value) != "", value)
        fitted = Fitted(value, F.lit(False)) if source == target else fit(value, source, target)
        if target == _STRING and column in self.table_schema.normal_text:
            return Fitted(normal_form(fitted.value), fitted.misfit)
        return fitted

    def _raw(self, column: str) -> tuple[Column, SqlType]:
        """A file's column as delivered, nanoseconds made a timestamp."""
        kind = parse_type(dict(self.how.raw)[column])
        if column in self.how.nanos:
            return from_nanos(name(column), kind).value, kind
        return name(column), kind

    def _delivered(self, column: str) -> tuple[Fitted, SqlType]:
        """A file's column after declared types and masks: value, misfit, type."""
        value, kind = self._raw(column)
        misfit = F.lit(False)
        if column in self.how.nanos:
            misfit = from_nanos(name(column), kind).misfit
        declared = declared_types(dict(self.how.raw), self.how.dialect).get(column)
        if declared is not None and not (self.how.already_masked and column in self.how.masks):
            fitted = fit(value, kind, parse_type(declared))
            value, misfit, kind = fitted.value, fitted.misfit, parse_type(declared)
        method = self.how.masks.get(column)
        if method is None or self.how.already_masked:
            return Fitted(value, misfit), kind
        kept = F.lit(None).cast(spark_type(str(kind))) if method == "null" else masked(value, method)
        return Fitted(kept, misfit), kind if method == "null" else _STRING

    def _values(self, deletes: Column) -> tuple[list[Column], list[Column], list[Column]]:
        values, misfits, rescued = self._planned(self.how.plan.actions, deletes)
        for column in self.how.plan.rescued:
            rescued.append(self._delivered(column)[0].value.alias(column))
        return values, misfits, rescued

    def _planned(
        self, actions: tuple[ColumnAction, ...], deletes: Column
    ) -> tuple[list[Column], list[Column], list[Column]]:
        """Values in target order, errors, and values for the rescued column."""
        values: list[Column] = []
        errors: list[Column] = []
        rescued: list[Column] = []
        for action in actions:
            kind = spark_type(str(action.target.type))
            if action.source not in self.how.names or action.source_type is None:
                values.append(F.lit(None).cast(kind))
                continue
            fitted, source_type = self._delivered(action.source)
            declared_misfit = _problem(
                fitted.misfit & ~deletes, "CAST_FAILED", action.source, "the value doesn't fit its declared type"
            )
            errors.append(declared_misfit)
            if action.how != "fit":
                values.append(cast(fitted.value, source_type, action.target.type))
                if action.keep_original:
                    rescued.append(fitted.value.alias(action.source))
                continue
            converted = self._fit(action, fitted.value, source_type)
            values.append(converted.value)
            if action.misfit == "rescue":
                rescued.append(F.when(converted.misfit, fitted.value).alias(action.source))
            else:
                errors.append(_problem(converted.misfit & ~deletes, "CAST_FAILED", action.source,
                                       f"a value of type {source_type} doesn't fit {action.target.type}"))  # fmt: skip
        return values, errors, rescued

    def _fit(self, action: ColumnAction, value: Column, source: SqlType) -> Fitted:
        if action.convertible:
            return fit(value, source, action.target.type)
        return Fitted(F.lit(None).cast(spark_type(str(action.target.type))), value.isNotNull())

    def _rescued_json(self, rescued: list[Column]) -> Column:
        if not rescued:
            return F.lit(None).cast("string")
        values = F.to_json(F.struct(*rescued), _JSON)
        full = F.to_json(F.struct(*rescued, name(FILE).alias("_file_path")), _JSON)
        return F.when(values != "{}", full)

    def _record(self) -> Column:
        """The original row as JSON, masked columns masked."""
        columns = []
        for column, kind in self.how.raw:
            method = self.how.masks.get(column)
            if method is None or self.how.already_masked:
                columns.append(name(column).alias(column))
            elif method == "null":
                columns.append(F.lit(None).cast(spark_type("string" if kind == "void" else kind)).alias(column))
            else:
                columns.append(masked(self._raw(column)[0], method).alias(column))
        record = F.to_json(F.struct(*columns), _JSON | {"ignoreNullFields": "false"})
        if not self.how.translated or self.how.dialect.spec.mask:
            return record
        # The original text that the dialect could make no row of; nobody could mask it.
        line = F.to_json(F.struct(name(MALFORMED).alias("line")), _JSON)
        return F.when(name(MALFORMED).isNull(), record).otherwise(line)

    def _struct(self, op: Column, sequence: Column | None) -> Column:
        commit_ts = F.lit(None).cast("timestamp")
        for candidate in self.how.dialect.commit_times:
            found = match(self.how.names, candidate)
            if found is not None:
                commit_ts = self._raw(found)[0].try_cast("timestamp")
                break
        values = {
            "sequence": sequence if sequence is not None else F.lit(None),
            "op": op,
            "commit_ts": commit_ts,
            "source_file": name(FILE),
            "position": name(POSITION),
            "batch_id": F.lit(self.stamp.batch_id),
            "generation": name(GENERATION),
            "applied_at": F.lit(self.stamp.applied_at).cast("timestamp"),
            "schema": F.lit(self.how.schema_id),
        }
        return F.struct(*(values[n].cast(spark_type(kind)).alias(n) for n, kind in self.table_schema.gddl_fields))


_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
JSON_OPTIONS = _JSON


def _problem(condition: Column, code: str, column: str | None, reason: str) -> Column:
    """Struct (code, column, reason) where the condition holds, else null. Never the value: it may be masked."""
    at = F.lit(column).cast("string").alias("column")
    return F.when(condition, F.struct(F.lit(code).alias("code"), at, F.lit(reason).alias("reason")))
