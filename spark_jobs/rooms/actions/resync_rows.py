"""`gddl resync`: rows of keys, or what `gddl verify` found different, read from the source.

Rows are written as change files of the table: an insert for each row that the source has, a delete for each that it
lacks. Their place in the order is that of the last change that was ingested before they were read: what came before it
loses to them, what comes after it replaces them (docs/semantics.md, section 21; docs/decisions/order-and-repairs.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.actions import ResyncRows
from airflow_gddl.contract.codes import KEY_INVALID, RESYNC_ROWS_REFUSED, RESYNC_WAITS
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.names import landed_name, renamed
from airflow_gddl.contract.result import JobResult, Warnings
from airflow_gddl.contract.sql_types import DecimalType, SqlType, parse_type, parts_of
from airflow_gddl.contract.table_spec import SHARD_COLUMN, lowered
from spark_jobs.batch import notices
from spark_jobs.batch.own_tables import require_loaded_tables
from spark_jobs.batch.resynced_files import ResyncedFiles, key_value
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.pipeline import bring_up_to_date, finished
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rooms.actions.source_rows import Conditions, SourceRows, log_position
from spark_jobs.rooms.actions.source_values import SourceColumn, in_one_schema, values_of
from spark_jobs.rooms.dialects.protocol import Dialect
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.erasure import WantedKey
from spark_jobs.rules.texts import WHOLE_NUMBERS, read_json
from spark_jobs.source_tables import opened
from spark_jobs.tables.engine import Engine
from spark_jobs.verification import DIFFERENCES, WINDOW_DIFFERENCES, Columns, mark_of, read_differences

_KEYS_AT_ONCE = 200
Key = tuple[Any, ...]
"""Values of the key columns, in the order of the table's keys."""
KeyTexts = tuple[str, ...]
"""The same as `Columns.key` writes them: equal for equal keys of source and lake."""


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Load what has landed, read the chosen rows from the source, and load these.

    Raises:
        FatalError: `RESYNC_ROWS_REFUSED`, `KEY_INVALID`; as `SourceRows.of`, and `run_table`.
    """
    _require_possible(run)
    one = _of_one_source(run)
    bring_up_to_date(run, totals)
    work = _Resync.of(one.beside(run.shard_states()) if one.shard else one)
    work.carry_out()
    totals.warn(work.source.warnings())
    bring_up_to_date(run, totals)
    totals.warn(work.waiting())
    result = finished(run, totals)
    return replace(result, status="succeeded", details={**(result.details or {}), "resync": work.counts()})


def _require_possible(run: TableRun) -> None:
    spec, what = run.spec, ""
    if not DIALECTS.get(spec.dialect).takes_source_rows:
        what, remedy = f"its dialect {spec.dialect} takes no rows from the source", "let its service read them again"
    elif not spec.keys:
        what, remedy = "its metadata row has no keys", f"`gddl load --again --table {spec.table}`"
    elif spec.mode != "changes":
        what, remedy = "it is made of snapshots, each of which is whole", "let the next snapshot come"
    elif spec.shards and not run.job.options.source_connection:
        what, remedy = "the connection of one of its sources is to be named", "name it by --source-connection"
    elif not run.source_connection:
        what, remedy = "no connection to the source is named", "name it by --source-connection"
    if what:
        raise _refused(run, what, remedy)


def _of_one_source(run: TableRun) -> TableRun:
    """The run of the source that the chosen rows name, which they name no more; the run itself where there is one.

    Raises:
        FatalError: `KEY_INVALID`: they are of several sources, of none, or of one that the row does not name.
    """
    if not run.spec.shards:
        return run
    asked = run.job.options.asked(ResyncRows)
    named = {next((v for name, v in key.items() if name.lower() == SHARD_COLUMN), None) for key in asked.keys}
    one = next((one for one in run.shard_runs() if {one.shard} == named), None)
    if one is None:
        what = f"the rows chosen of {run.spec.table} do not name one source in {SHARD_COLUMN}"
        remedy = f"name one of {', '.join(run.spec.shards)} in each key"
        raise FatalError(KEY_INVALID, what, where=run.spec.table, remedy=remedy)
    keys = tuple({n: value for n, value in key.items() if n.lower() != SHARD_COLUMN} for key in asked.keys)
    return one.asking(replace(asked, keys=keys))


def _refused(run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(RESYNC_ROWS_REFUSED, f"{run.spec.table}: {what}", where=run.spec.table, remedy=remedy)


@dataclass(frozen=True)
class SequencePlace:
    """Where the rows come in the order of changes.

    Attributes:
        placed: column of files to the value that all rows have there; empty where the rows' own values order them.
        source_columns: sequence columns of the source.
    """

    placed: Mapping[str, pa.Scalar]
    source_columns: tuple[str, ...]

    @classmethod
    def of(cls, run: TableRun, schema: TableSchema, state: TableState, source: SourceRows) -> SequencePlace:
        """
        Raises:
            FatalError: `RESYNC_ROWS_REFUSED`: no change was ingested yet, or the order's columns are known of neither
                source nor service. Rows with an order of their own tie with changes of equal order: names of files have
                to tell which of them is the later one.
        """
        if state.max_sequence is None:
            what = "no change was ingested yet, so that nothing tells where its rows come in the order of changes"
            raise _refused(run, what, f"`gddl load --again --table {run.spec.table}`")
        here = lowered(renamed(column.name, run.spec) for column in source.columns)
        own_columns = tuple(name for name in schema.sequence if name.lower() in here)
        added = lowered(run.dialect.total_order) | lowered(run.dialect.commit_times)
        is_placed = run.spec.dialect == "dms" or lowered(schema.sequence) <= added
        by_time = type(run.dialect).times is Dialect.times
        if not (is_placed if not own_columns else by_time and len(own_columns) == len(schema.sequence)):
            what = f"its changes are ordered by {', '.join(schema.sequence)}, which gives rows of the source no place"
            raise _refused(run, what, f"`gddl load --again --table {run.spec.table}`")
        kind = parse_type(schema.sequence_type)
        value = read_json(json.loads(state.max_sequence, parse_float=Decimal), kind)
        places = zip(schema.sequence, _parts(value), map(arrow_type, parts_of(kind)), strict=True)
        placed = {} if own_columns else {name: pa.scalar(part, of_files) for name, part, of_files in places}
        stored = lowered(schema.columns)
        time = next((name for name in run.dialect.commit_times if name.lower() in stored), None)
        if time is not None and time not in placed and state.max_commit_ts is not None:
            placed[time] = pa.scalar(datetime.fromisoformat(state.max_commit_ts), pa.timestamp("us", "UTC"))
        return cls(placed, own_columns)


def _parts(sequence: Any) -> list[Any]:
    """Values of a sequence, one for each of its columns."""
    return list(sequence.values()) if isinstance(sequence, dict) else [sequence]


def _of_source(schema: TableSchema) -> TableSchema:
    """The schema without the column that names the source: which a source's table lacks."""
    if schema.spec.shard is None:
        return schema
    data = tuple(column for column in schema.data if column.name != SHARD_COLUMN)
    return replace(schema, data=data, keys=tuple(key for key in schema.keys if key != SHARD_COLUMN))


@dataclass
class _Resync:
    """Attributes:
    schema: as the source has it.
    """

    run: TableRun
    context: Engine
    schema: TableSchema
    source: SourceRows
    columns: Columns
    place: SequencePlace
    files: ResyncedFiles
    after: str = ""
    rows: int = 0
    absent: int = 0
    _seen: set[KeyTexts] = field(default_factory=set)

    @classmethod
    def of(cls, run: TableRun) -> _Resync:
        ledger = run.ledger()
        notices.require_first_load(run.spec.table, ledger)
        if ledger.state.keys is None:
            raise _refused(run, "it is not loaded yet", f"`gddl run --table {run.spec.table}`")
        notices.require_finished(run, ledger, then="resync")
        require_same_identity(run.spec, ledger.state)
        context = run.context()
        require_loaded_tables(context, ledger.state)
        schema = _of_source(context.stored_schema(ledger.state))
        source = SourceRows.of(run)
        with opened(source.url, source.table) as source_table:
            columns = Columns.of(source_table, schema)
        place = SequencePlace.of(run, schema, ledger.state, source)
        return cls(run, context, schema, source, columns, place, ResyncedFiles.of(run, ledger.state))

    def carry_out(self) -> None:
        asked = self.run.job.options.asked(ResyncRows)
        named = {self.columns.key(key): key for key in map(self._key, asked.keys)}
        self._by_key(self._different() if asked.differences else named)
        with opened(self.source.url, self.source.table) as source_table:
            self.after = log_position(source_table.connection)

    def counts(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "absent": self.absent, "files": len(self.files.paths),
            "position_before": self.source.position, "position_after": self.after,
        }  # fmt: skip

    def waiting(self) -> Warnings:
        """`RESYNC_WAITS` where files are not loaded yet, such as behind a truncate that is held."""
        known = self.run.ledger().all_entries() if self.files.paths else {}
        paths = [path for path in self.files.paths if path not in known]
        return notices.of_names(RESYNC_WAITS, "files with rows of the source wait for a later run, after others", paths)

    # Keys that the user names

    def _key(self, named: Mapping[str, str]) -> Key:
        spec = self.run.spec
        wanted = WantedKey.of(spec, self.schema, {renamed(name, spec): text for name, text in named.items()})
        return tuple(_value(text, wanted.kinds[name]) for name, text in wanted.source.items())

    # What is read of the lake, always before the source

    def _lake_rows(self, *more: str) -> Iterator[tuple[KeyTexts, Key, list[Any]]]:
        """Keys of the lake, as texts too, with the values of more columns."""
        shard, kinds = self.run.shard, {column.name: column.type for column in self.schema.data}
        names = (*self.schema.keys, *more)
        rows = self.context.stored.live_rows((SHARD_COLUMN, *names) if shard else names)
        for row in ([*row] for row in rows) if not shard else ([*row] for source, *row in rows if source == shard):
            key = tuple(key_value(value, kinds[name]) for value, name in zip(row, self.schema.keys, strict=False))
            yield self.columns.key(key), key, row[len(key) :]

    def _different(self) -> dict[KeyTexts, Key]:
        """Keys that the last comparisons found different, of both sides."""
        storage, root = self.context.storage, self.context.layout.state
        marks = {mark for name in (DIFFERENCES, WINDOW_DIFFERENCES) for mark in read_differences(storage, root, name)}
        if not marks:
            return {}
        keys = {texts: key for texts, key, _ in self._lake_rows() if mark_of(texts) in marks}
        names = [column.name for column in self._key_columns]
        with opened(self.source.url, self.source.table) as table:
            for row in table.rows(names, names[0], (None, None)):
                if mark_of(texts := self.columns.key(row)) in marks:
                    keys[texts] = tuple(row)
        return keys

    def _known(self, keys: Mapping[KeyTexts, Key]) -> dict[KeyTexts, Mapping[str, Any]]:
        """Keys of the lake to the values of their sequence columns, where the rows' own values order them."""
        if not self.place.source_columns:
            return {texts: {} for texts in keys}
        return {
            texts: dict(zip(self.schema.sequence, _parts(gddl["sequence"]), strict=True))
            for texts, _, (gddl,) in self._lake_rows(GDDL) if texts in keys
        }  # fmt: skip

    # What is read of the source

    def _by_key(self, keys: Mapping[KeyTexts, Key]) -> None:
        """Read rows by their keys; those that the source lacks are deleted."""
        known, wanted = self._known(keys), list(keys.values())
        size = self.source.settings.chunk_rows
        for start in range(0, len(wanted), size):
            self._write(self._rows_of(wanted[start : start + size]))
        self._delete({texts: key for texts, key in keys.items() if texts not in self._seen}, known)

    def _rows_of(self, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            yield from self.source.rows(None, None, self._are(keys[start : start + _KEYS_AT_ONCE]))

    def _are(self, keys: Sequence[Key]) -> Conditions:
        names = [column.name for column in self._key_columns]

        def made(sa: Any, table: Any) -> Sequence[Any]:
            if len(names) == 1:
                return (table.c[names[0]].in_([key[0] for key in keys]),)
            pairs = [[table.c[name] == value for name, value in zip(names, key, strict=True)] for key in keys]
            return (sa.or_(*(sa.and_(*pair) for pair in pairs)),)

        return made

    # Files

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """A file of the rows, inserts all of them."""
        made = []
        for batch in batches:
            self.run.go_on()
            keys = zip(*(values_of(batch.column(c.in_files), c) for c in self._key_columns), strict=True)
            self._seen.update(self.columns.key(key) for key in keys if None not in key)
            made.append(batch)
        table = in_one_schema(made, self.source.schema)
        self.rows += table.num_rows
        self._keep(table, "I")

    def _delete(self, keys: Mapping[KeyTexts, Key], known: Mapping[KeyTexts, Mapping[str, Any]]) -> None:
        """A file of deletes; of keys that the lake has not either there is nothing to delete."""
        chosen = [texts for texts in keys if texts in known]
        self.absent += len(keys)
        values: dict[str, list[Any]] = {
            self._own_in_files(name): [known[texts][name] for texts in chosen] for name in self.place.source_columns
        }
        values |= {c.in_files: [keys[texts][at] for texts in chosen] for at, c in enumerate(self._key_columns)}
        columns = [pa.array(values.get(f.name, [None] * len(chosen)), f.type) for f in self.source.schema]
        self._keep(pa.table(columns, schema=self.source.schema), "D")

    @cached_property
    def _key_columns(self) -> list[SourceColumn]:
        by_name = {column.name: column for column in self.source.columns}
        return [by_name[name] for name in self.columns.source[: self.columns.keys]]

    def _own_in_files(self, sequence: str) -> str:
        wanted = sequence.lower()
        return next(c.in_files for c in self.source.columns if renamed(c.name, self.run.spec).lower() == wanted)

    def _keep(self, table: pa.Table, op: str) -> None:
        if not table.num_rows:
            return
        kinds = {landed_name(column.name).lower(): column.type for column in self.schema.data}
        for name, value in {**self.place.placed, self.run.dialect.op_column: pa.scalar(op)}.items():
            if name in table.column_names:
                continue
            as_text = str(kinds.get(name.lower())) == "string" and pa.types.is_timestamp(value.type)
            shown = pa.scalar(value.as_py().astimezone(UTC).isoformat(" ")) if as_text else value
            table = table.add_column(0, name, pa.repeat(shown, table.num_rows))
        self.files.write(table)
        self.run.report("rows of the source written", len(self.files.paths), self.rows)


def _value(text: str, kind: SqlType) -> Any:
    """The value whose text `key_text` has written."""
    name = str(kind)
    if isinstance(kind, DecimalType):
        return Decimal(text)
    readers: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(WHOLE_NUMBERS, int), "double": float, "float": float, "boolean": "true".__eq__,
        "date": date.fromisoformat, "timestamp": datetime.fromisoformat, "timestamp_ntz": datetime.fromisoformat,
    }  # fmt: skip
    return readers.get(name, str)(text)
