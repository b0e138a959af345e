"""Deletes of the rows that a source has dropped with their partitions: `partition_dropped: delete`.

The log was read, and loaded, until behind all changes of these partitions. Then one snapshot of the source tells which
keys in their bounds it lacks. Each of these is deleted at the place until which the log was read: it comes after every
change that was loaded, and a row that came under its key since wins over it. When the partitions were dropped in
between does not matter (docs/decisions/sources.md).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.actions import Run
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.postgresql_log import key_columns, quoted_name
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.sql_types import SqlType
from spark_jobs.batch.own_tables import require_loaded_tables
from spark_jobs.batch.resynced_files import ResyncedFiles, key_value
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.dialects.debezium.technical import SEQUENCE, TIME, place_behind
from spark_jobs.pipeline import bring_up_to_date, finished
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.source_tables import SourceTable, connected, opened, quoted, state_of
from spark_jobs.sources.capture.followed import DroppedPartitions, undeletable
from spark_jobs.sources.capture.position import LogPosition, read_followed, write_followed

_AT_ONCE, _ROWS_OF_FILE = 5_000, 100_000
_PAUSE_SECONDS = 0.2
_PARAMETER = "\0"
"""In place of the colon of parameters, which constants have, too."""
Key = tuple[Any, ...]
"""Values of the key columns, in the order of the table's keys."""


@dataclass(frozen=True)
class PartitionDeletes:
    """Attributes:
    sa: the module `sqlalchemy`.
    url: of the source, an `sqlalchemy.engine.URL`.
    known: until where the log was read after the partitions were dropped.
    """

    sa: Any
    run: TableRun
    url: Any
    dropped: DroppedPartitions
    known: LogPosition

    def after(self, result: JobResult, totals: RunTotals) -> JobResult:
        """The result of the run once it has loaded these deletes, too; of a run that has to wait, with a warning.

        Args:
            result: of the run that has loaded what the log had.

        Raises:
            FatalError: `SOURCE_TABLE_ALTERED`: PostgreSQL can't tell which rows the partitions had; as `opened` and
                `run_table`.
            RetriableError: `TABLE_BUSY`.
        """
        if why := self._waits():
            message = f"partitions were dropped or detached in the source, and their rows are not deleted yet: {why}"
            count, sample = len(self.dropped.names), self.dropped.names[-5:]
            totals.warn([RunWarning(code="PARTITIONS_WAIT", message=message, count=count, sample=sample)])
            return replace(result, warnings=tuple(totals.warnings.values()))
        deleted = self._write()
        self._require_not_loaded()
        write_followed(self.run.runtime.storage, self.run.layout.state, self.dropped.followed)
        message = "rows were deleted that the source has dropped with their partitions"
        rows = tuple(f"{bounds.name}: {deleted[at]}" for at, bounds in enumerate(self.dropped.bounds))
        count, sample = deleted.total(), rows[-5:]
        totals.warn([RunWarning(code="PARTITIONS_DELETED", message=message, count=count, sample=sample)])
        bring_up_to_date(self.run, totals)
        return finished(self.run, totals)

    def _waits(self) -> str:
        """Why it is not sure yet that all changes from before the drop are loaded, and seen by a query; empty: it is.
        A later run finds the drop again then."""
        if not isinstance(self.run.job.options.action, Run):
            return "the next run that loads changes does it"
        if self.run.is_loading:
            return "the table's load from the source has not ended"
        if self.dropped.detaching:
            return f"DETACH CONCURRENTLY of {', '.join(self.dropped.detaching)} has not ended"
        ledger = self.run.ledger()
        found = self.run.discover(ledger)
        if ledger.plan() is not None or found.waiting or found.unsettled or found.unreadable_changes:
            return "files of the table were not loaded"
        return self._writers()

    def _writers(self) -> str:
        """A transaction that the log has, and that was loaded, may not be seen by queries for a moment. It holds its
        locks until it is: those that hold one now are waited for."""
        deadline = time.monotonic() + self.run.runtime.limits.writers_seconds
        with connected(self.url) as connection:
            before = self._holders(connection)
            while before and (before := before & self._holders(connection)):
                if time.monotonic() > deadline:
                    return f"{len(before)} transactions that write to the table are open for longer than a minute"
                self.run.go_on()
                time.sleep(_PAUSE_SECONDS)
        return ""

    def _holders(self, connection: Any) -> set[str]:
        parameters = {"relation": self.dropped.followed.number}
        return set(connection.execute(self.sa.text(_HOLDERS), parameters).scalars())

    def _write(self) -> Counter[int]:
        """Write the files of deletes; how many rows, by the number of the bounds that they are in."""
        run, counts = self.run, Counter[int]()
        state = run.ledger().state
        if state.keys is None:  # nothing was ever loaded
            return counts
        context = run.context()
        require_loaded_tables(context, state)
        schema, files = context.stored_schema(state), ResyncedFiles.of(run, state)
        place = self._place(state)
        with opened(self.url, *run.spec.name_in_source.split(".", 1)) as table:
            comparison = _Comparison.of(self.sa, run, table, schema, self.dropped)
            rows = iter(context.engine.contents(context).live_rows(schema.keys))
            missing = comparison.missing(rows)
            while found := list(islice(missing, _ROWS_OF_FILE)):
                counts.update(number for number, _ in found)
                self._require_not_loaded()
                files.write(comparison.file([key for _, key in found], run.dialect.op_column, place))
                run.runtime.storage.sync(files.paths[-1])
                run.report("deletes of dropped partitions written", len(files.paths), counts.total())
        return counts

    def _require_not_loaded(self) -> None:
        """
        Raises:
            RetriableError: `TABLE_BUSY`: another job has begun to load the table again meanwhile.
        """
        if read_followed(self.run.runtime.storage, self.run.layout.state) != self.dropped.before:
            what = f"another job loads {self.run.spec.table}, or has found the same partitions dropped"
            raise RetriableError("TABLE_BUSY", what, where=self.run.spec.table, remedy="run it again")

    def _place(self, state: TableState) -> Mapping[str, pa.Scalar]:
        """Behind every change that was loaded, and before each that comes later."""
        offset = json.loads(self.known.offsets[-1].offset)
        known = None if state.max_sequence is None else json.loads(state.max_sequence)
        newest = known.get(SEQUENCE) if isinstance(known, dict) else known
        place = place_behind(offset.get("lsn_commit"), offset.get("lsn"), self.known.number)
        at = datetime.fromtimestamp(offset.get("ts_usec", 0) / 1_000_000, UTC)
        return {SEQUENCE: pa.scalar(max(place, newest or "")), TIME: pa.scalar(at, pa.timestamp("us", "UTC"))}


@dataclass(frozen=True)
class _KeyColumn:
    """Attributes:
    name: in the source; `sql`: its type there, `collation`: by which it is compared there, as SQL; `kind`: its type in
        the lake.
    is_text: its values are texts: those that the source holds to be equal are not the same key.
    """

    name: str
    sql: str
    collation: str
    kind: SqlType
    is_text: bool

    @property
    def quoted(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True)
class _Comparison:
    """Keys of the lake, of which PostgreSQL says which are in the bounds of a dropped partition and have no row."""

    run: TableRun
    table: SourceTable
    columns: tuple[_KeyColumn, ...]
    dropped: DroppedPartitions
    _sa: Any = field(repr=False)

    @classmethod
    def of(
        cls, sa: Any, run: TableRun, table: SourceTable, schema: TableSchema, dropped: DroppedPartitions
    ) -> _Comparison:
        kinds = {column.name: column.type for column in schema.data}
        parameters = {"relation": dropped.followed.number}
        found = {row["name"]: row for row in table.connection.execute(sa.text(_COLUMNS), parameters).mappings()}
        names = key_columns(run.spec, found)
        columns = tuple(
            _KeyColumn(names[key], one["type"], one["collation"], kinds[key], one["is_text"])
            for key in schema.keys
            for one in [found[names[key]]]
        )
        if table.is_unencoded and any(column.is_text for column in columns):
            raise undeletable(run, dropped.names, "the database has no encoding, and keys are texts")
        return cls(run, table, columns, dropped, sa)

    def missing(self, keys: Iterator[Key]) -> Iterator[tuple[int, Key]]:
        """Those that the source lacks, with the number of the bounds that they are in.

        Raises:
            FatalError: `SOURCE_TABLE_ALTERED`: PostgreSQL can't evaluate the bounds.
        """
        statement = self._sa.text(self._statement().replace(":", r"\:").replace(_PARAMETER, ":key_"))
        while part := list(islice(keys, _AT_ONCE)):
            self.run.go_on()
            texts = [
                [_text(value, c.kind) for value in values]
                for c, values in zip(self.columns, zip(*part, strict=True), strict=True)
            ]
            values = {f"key_{at}": one for at, one in enumerate(texts)}
            try:
                rows = self.table.connection.execute(statement, values).all()
            except self._sa.exc.DatabaseError as error:
                if isinstance(error, self._sa.exc.OperationalError):
                    raise
                why = f"PostgreSQL can't evaluate their bounds for keys of the table (SQLSTATE {state_of(error)})"
                raise undeletable(self.run, self.dropped.names, why) from None
            if any(number is None for _, number in rows):
                why = "a partition that their bounds name is no more"
                raise undeletable(self.run, self.dropped.names, why)
            yield from ((number, part[at - 1]) for at, number in rows)

    def _statement(self) -> str:
        """Rows of a place in the parameters, and the number of the bounds; None: they can't be evaluated."""
        conditions = [f"({bounds.condition})" for bounds in self.dropped.bounds]
        arrays = ", ".join(f"CAST({_PARAMETER}{at} AS text[])" for at in range(len(self.columns)))
        names = ", ".join(f"gddl_{at}" for at in range(len(self.columns)))
        typed = ", ".join(f"CAST(gddl_{at} AS {c.sql}){c.collation} AS {c.quoted}" for at, c in enumerate(self.columns))
        cases = " ".join(f"WHEN {condition} THEN {at}" for at, condition in enumerate(conditions))
        equal = " AND ".join(f"there.{c.quoted} = here.{c.quoted}" for c in self.columns)
        exact = "".join(
            f' AND CAST(there.{c.quoted} AS text) COLLATE "C" = CAST(here.{c.quoted} AS text) COLLATE "C"'
            for c in self.columns if c.is_text
        )  # fmt: skip
        return f"""
SELECT gddl_at, CASE {cases} END
FROM (SELECT gddl_at, {typed} FROM unnest({arrays}) WITH ORDINALITY AS given({names}, gddl_at)) AS here
WHERE ({" OR ".join(f"{condition} IS NOT FALSE" for condition in conditions)})
  AND NOT EXISTS (SELECT FROM {quoted_name(self.run.spec.name_in_source)} AS there WHERE {equal}{exact})"""  # noqa: S608 - names and conditions are the catalog's

    def file(self, keys: Sequence[Key], op: str, place: Mapping[str, pa.Scalar]) -> pa.Table:
        """Deletes of these keys, under the names that columns have in the source."""
        by_column = zip(self.columns, zip(*keys, strict=True), strict=True)
        data = {c.name: pa.array([key_value(v, c.kind) for v in values], arrow_type(c.kind)) for c, values in by_column}
        placed = {name: pa.repeat(value, len(keys)) for name, value in place.items()}
        return pa.table({op: pa.repeat("D", len(keys)), **data, **placed})


def _text(value: Any, kind: SqlType) -> str:
    """A value as PostgreSQL reads it from text."""
    value = key_value(value, kind)
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return repr(value) if isinstance(value, float) else str(value)


_HOLDERS = """
SELECT l.virtualtransaction FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE d.datname = current_database() AND l.locktype = 'relation' AND l.granted
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND (l.relation = :relation OR l.relation IN (SELECT relid FROM pg_partition_tree(:relation)))
"""
_COLUMNS = """
SELECT CAST(a.attname AS text) AS name, format_type(a.atttypid, -1) AS type, t.typcategory = 'S' AS is_text,
  COALESCE(' COLLATE ' || quote_ident(n.nspname) || '.' || quote_ident(l.collname), '') AS collation
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation l ON l.oid = a.attcollation
LEFT JOIN pg_namespace n ON n.oid = l.collnamespace
WHERE a.attrelid = :relation AND a.attnum > 0 AND NOT a.attisdropped
"""
