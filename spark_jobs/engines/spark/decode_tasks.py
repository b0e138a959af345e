"""Decoding in Spark tasks: `mapInArrow` over parts of files, by the same rules as engine `delta_rs`.

A task returns its rows and, after those of each part, one row with only a report: figures, or why a file can't be
read. So nothing is counted twice, and a damaged file stops no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from airflow_gddl.contract.errors import GddlError, QuarantinableError, RetriableError
from airflow_gddl.stores import Storage
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.probe import reading
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import DEAD_WORKER
from spark_jobs.engines.decoding import Decoder, Fault, fault_of, out_of_memory, read_part
from spark_jobs.engines.spark import row_types
from spark_jobs.engines.splits import Split
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import error_rows
from spark_jobs.rules.changes import change_columns, change_schema
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.measure import PartFigures, combined, measure
from spark_jobs.rules.read import grouped
from spark_jobs.rules.records import replayed

ERROR, KIND, REPORT = f"{GDDL}__error", f"{GDDL}__kind", f"{GDDL}__report"
"""Record of a bad row for the errors table (null: a good row); `load` or `change`; a report instead of a row."""
ORDINAL = f"{GDDL}__ordinal"
_BATCH_ROWS = 1 << 16
_TASK = re.compile(r"\bTask ([0-9]{1,9}) in stage [0-9.]{1,20} failed")
_ERROR_TYPE = pa.struct(list(error_rows.SCHEMA))


@dataclass(frozen=True, kw_only=True)
class Report:
    """Result of one part.

    Attributes:
        path: of its file.
        figures: null where it can't be read: `code` and `reason` say why.
        error: a fault of the store, which stops the batch: family, code, what, where, remedy.
    """

    path: str = ""
    figures: PartFigures | None = None
    code: str = ""
    reason: str = ""
    error: Fault = ()

    def to_json(self) -> str:
        figures = None if self.figures is None else self.figures.to_json()
        return json.dumps([self.path, figures, self.code, self.reason, self.error])

    @classmethod
    def from_json(cls, text: str) -> Report:
        path, figures, code, reason, error = json.loads(text)
        read = None if figures is None else PartFigures.from_json(figures)
        return cls(path=path, figures=read, code=code, reason=reason, error=tuple(error))


def row_type(table_schema: TableSchema) -> T.StructType:
    """Type of decoded rows: columns of the change table, `_gddl`, `ERROR`, `KIND`."""
    others = {ERROR: row_types.struct(error_rows.TABLE), KIND: T.StringType()}
    return row_types.struct(change_columns(table_schema), **others)


def reported_type(table_schema: TableSchema) -> T.StructType:
    """Type of the tasks' output: decoded rows and `REPORT`."""
    return T.StructType([*row_type(table_schema).fields, T.StructField(REPORT, T.StringType())])


@dataclass(frozen=True, kw_only=True)
class DecodeFiles:
    """Decodes parts of files. Called by tasks with the indexes of their part lists in a column `id`.

    Attributes:
        tasks: parts by task.
    """

    decoder: Decoder
    dialect: Dialect
    tasks: tuple[tuple[Split, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = Storage()
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for split in self.tasks[number]:
                    yield from as_batches(self.part(storage, split))

    def part(self, storage: Storage, split: Split) -> pa.Table:
        """Rows of a part and its report."""
        path = split.file.file.path
        try:
            with reading(split.file.file):
                found = read_part(storage, self.dialect, split)
                if isinstance(found, Unreadable):
                    return self._report(Report(path=path, code=found.code, reason=found.reason))
                raw = grouped([split.file], {path: found}, {path: split.ordinal})
                group, figures = self.decoder.part(split.group, raw)
                return pa.concat_tables(
                    [with_errors(group, self.decoder), self._report(Report(path=path, figures=figures))]
                )
        except MemoryError as error:
            return self._report(Report(path=path, error=fault_of(out_of_memory(path, error))))
        except QuarantinableError as error:
            return self._report(Report(path=path, code=error.code, reason=error.what))
        except GddlError as error:
            return self._report(Report(path=path, error=fault_of(error)))

    def _report(self, report: Report) -> pa.Table:
        return report_row(report, self.decoder.table_schema)


@contextmanager
def naming_files(tasks: Sequence[Sequence[str]]) -> Iterator[None]:
    """Name the files of a task whose process died.

    Args:
        tasks: paths of the files of each.

    Raises:
        RetriableError: `WORKER_DIED`.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        task = _TASK.search(text)
        if not any(sign in text for sign in DEAD_WORKER) or task is None or int(task[1]) >= len(tasks):
            raise
        paths = list(dict.fromkeys(tasks[int(task[1])]))
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        what = f"processes died (out of memory?) that read {', '.join(paths[:3])}{more}"
        remedy = "give the table a larger tier, or deliver the file in smaller ones"
        raise RetriableError("WORKER_DIED", what, where=paths[0], remedy=remedy) from error


@dataclass(frozen=True, kw_only=True)
class DecodeRecords:
    """Decodes rows of the errors table, which tasks get with an `ORDINAL` of their file.

    Attributes:
        numbers: kind and DDL of records to the number of their group.
    """

    decoder: Decoder
    numbers: dict[tuple[str, str], int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.to_pylist()
            ordinals = {row["source_file"]: row[ORDINAL] for row in rows}
            for again in replayed(rows, ordinals):
                group, figures = self.decoder.part(self.numbers[again.kind, again.schema], again.raw)
                report = report_row(Report(figures=figures), self.decoder.table_schema)
                yield from as_batches(pa.concat_tables([with_errors(group, self.decoder), report]))


@dataclass(frozen=True)
class MeasureChanges:
    """Figures of rows of the change table: its columns that `measure` needs, to a column of figures."""

    table_schema: TableSchema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = []
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            loads = np.asarray(rows.column(KIND).to_pylist()) == "load"
            for kind, where in (("load", loads), ("change", ~loads)):
                parts.append(measure(DecodedGroup(kind=kind, rows=rows.filter(pa.array(where))), self.table_schema))
        yield pa.RecordBatch.from_pydict({REPORT: [combined(parts, self.table_schema).to_json()]})


def with_errors(group: DecodedGroup, decoder: Decoder) -> pa.Table:
    """Decoded rows with `ERROR`, `KIND` and an empty `REPORT`."""
    count = group.rows.num_rows
    rows = pa.Table.from_arrays(group.rows.columns, schema=change_schema(decoder.table_schema))
    errors = pa.nulls(count, _ERROR_TYPE)
    if group.bad:
        numbers = np.full(count, -1)
        numbers[list(group.bad)] = np.arange(len(group.bad))
        bad = error_rows.of_rows(group, decoder.stamp).to_struct_array().combine_chunks()
        errors = bad.take(pa.array(numbers, mask=numbers < 0))
    rows = rows.append_column(ERROR, errors)
    rows = rows.append_column(KIND, pa.repeat(group.kind, count))
    return rows.append_column(REPORT, pa.nulls(count, pa.string()))


def report_row(report: Report, table_schema: TableSchema) -> pa.Table:
    """A row with only a report."""
    others = {ERROR: _ERROR_TYPE, KIND: pa.string(), REPORT: pa.string()}
    schema = pa.schema([*change_schema(table_schema), *(pa.field(name, kind) for name, kind in others.items())])
    return pa.Table.from_pylist([{REPORT: report.to_json()}], schema=schema)


def as_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
