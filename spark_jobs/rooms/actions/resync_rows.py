"""`gddl resync`: rows of keys, or what `gddl verify` found different, read from the source.

Rows are written as change files of the table: an insert for each row that the source has, a delete for each that it
lacks. Their place in the order is that of the last change that was ingested before they were read: what came before it
loses to them, what comes after it replaces them (docs/semantics.md, section 21; docs/decisions/repairs.md).
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
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.spec import InitialLoad
from airflow_gddl.contract.sql_types import DecimalType, SqlType, StructType, parse_type
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
from spark_jobs.rooms.actions.source_rows import Conditions, RowRate, SourceRows, log_position
from spark_jobs.rooms.actions.source_values import SourceColumn, in_one_schema, values_of
from spark_jobs.rooms.dialects.protocol import Dialect
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.erasure import how_written, key_text
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
    return one.asking(replace(asked, keys=tuple(map(_without_source, asked.keys))))


def _without_source(named: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in named.items() if name.lower() != SHARD_COLUMN}


def _refused(run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(RESYNC_ROWS_REFUSED, f"{run.spec.table}: {what}", where=run.spec.table, remedy=remedy)


@dataclass(frozen=True)
class SequencePlace:
    """Where the rows come in the order of changes.

    Attributes:
        placed: column of files to the value that all rows have there; empty where the rows' own values order them.
        source_columns: sequence columns of the source.
        types: Arrow type of each of `placed`.
    """

    placed: Mapping[str, Any]
    source_columns: tuple[str, ...]
    types: Mapping[str, pa.DataType]

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
        times = lowered(run.dialect.commit_times)
        added = lowered(run.dialect.total_order) | times
        is_placed = run.spec.dialect == "dms" or lowered(schema.sequence) <= added
        by_time = type(run.dialect).times is Dialect.times
        if not (is_placed if not own_columns else by_time and len(own_columns) == len(schema.sequence)):
            what = f"its changes are ordered by {', '.join(schema.sequence)}, which gives rows of the source no place"
            raise _refused(run, what, f"`gddl load --again --table {run.spec.table}`")
        kind = parse_type(schema.sequence_type)
        value = read_json(json.loads(state.max_sequence, parse_float=Decimal), kind)
        parts = [f.type for f in kind.fields] if isinstance(kind, StructType) else [kind]
        values = list(value.values()) if isinstance(value, dict) else [value]
        placed = {} if own_columns else dict(zip(schema.sequence, values, strict=True))
        types = {} if own_columns else dict(zip(schema.sequence, map(arrow_type, parts), strict=True))
        stored = lowered(schema.columns)
        time = next((name for name in run.dialect.commit_times if name.lower() in stored), None)
        if time is not None and time not in placed and state.max_commit_ts is not None:
            placed[time] = datetime.fromisoformat(state.max_commit_ts)
            types[time] = pa.timestamp("us", "UTC")
        return cls(placed, own_columns, types)


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
    before: str
    rate: RowRate
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
        source = SourceRows.of(run, run.spec.initial_load or InitialLoad())
        with opened(source.url, *source.table.split(".", 1)) as source_table:
            columns = Columns.of(source_table, schema)
        place = SequencePlace.of(run, schema, ledger.state, source)
        rate, files = RowRate(source.settings.max_rows_per_second), ResyncedFiles.of(run, ledger.state)
        return cls(run, context, schema, source, columns, place, files, source.position, rate)

    def carry_out(self) -> None:
        asked = self.run.job.options.asked(ResyncRows)
        named = {self._texts(key): key for key in map(self._key, asked.keys)}
        self._by_key(self._different() if asked.differences else named)
        with opened(self.source.url, *self.source.table.split(".", 1)) as source_table:
            self.after = log_position(source_table.connection)

    def counts(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "absent": self.absent, "files": len(self.files.paths), "position_before": self.before,
            "position_after": self.after,
        }  # fmt: skip

    def waiting(self) -> tuple[RunWarning, ...]:
        """`RESYNC_WAITS` where files are not loaded yet, such as behind a truncate that is held."""
        known = self.run.ledger().all_entries() if self.files.paths else {}
        paths = [path for path in self.files.paths if path not in known]
        if not paths:
            return ()
        message = "files with rows of the source wait for a later run, after others"
        return (RunWarning(code=RESYNC_WAITS, message=message, count=len(paths), sample=tuple(paths[:5])),)

    # Keys that the user names

    @cached_property
    def _kinds(self) -> dict[str, SqlType]:
        return {column.name: column.type for column in self.schema.data if column.name in self.schema.keys}

    def _key(self, named: Mapping[str, str]) -> Key:
        values = self._named(named)
        if set(values) != set(self.schema.keys):
            raise self._misnamed(values, "name the whole key: ")
        return tuple(values[name] for name in self.schema.keys)

    def _misnamed(self, values: Mapping[str, Any], remedy: str) -> FatalError:
        what = f"the key of {self.run.spec.table} is {', '.join(self.schema.keys)}, not {', '.join(values)}"
        shown = " ".join(f"--key {name}=…" for name in self.schema.keys)
        return FatalError(KEY_INVALID, what, where=self.run.spec.table, remedy=remedy + shown)

    def _named(self, named: Mapping[str, str]) -> dict[str, Any]:
        """Key columns and values.

        Raises:
            FatalError: `KEY_INVALID`; its message shows no value, which may be personal.
        """
        values: dict[str, Any] = {}
        for given, text in named.items():
            alone = self.schema.keys[0] if not given and len(self.schema.keys) == 1 else None
            name = alone or self.schema.spelled(renamed(given, self.run.spec)) or given
            kind = self._kinds.get(name)
            if kind is None:
                raise self._misnamed({given or "a value alone": text}, "name its columns: ")
            fitted = key_text(text, kind)
            if fitted is None:
                what = f"the value for {name} is not one of its type, {kind}"
                raise FatalError(KEY_INVALID, what, where=self.run.spec.table, remedy=how_written(name, kind))
            values[name] = _value(fitted, kind)
        return values

    def _texts(self, key: Sequence[Any]) -> KeyTexts:
        return self.columns.key(key)

    # What is read of the lake, always before the source

    def _lake_rows(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        shard, stored = self.run.shard, self.context.stored
        if not shard:
            yield from stored.live_rows(columns)
            return
        for source, *row in stored.live_rows((SHARD_COLUMN, *columns)):
            if source == shard:
                yield tuple(row)

    def _lake_keys(self) -> Iterator[Key]:
        kinds = [self._kinds[name] for name in self.schema.keys]
        for row in self._lake_rows(self.schema.keys):
            yield tuple(key_value(value, kind) for value, kind in zip(row, kinds, strict=True))

    def _different(self) -> dict[KeyTexts, Key]:
        """Keys that the last comparisons found different, of both sides."""
        storage, root = self.context.storage, self.context.layout.state
        marks = {mark for name in (DIFFERENCES, WINDOW_DIFFERENCES) for mark in read_differences(storage, root, name)}
        if not marks:
            return {}
        keys: dict[KeyTexts, Key] = {}
        for key in self._lake_keys():
            if mark_of(texts := self._texts(key)) in marks:
                keys[texts] = key
        names = self.columns.source[: self.columns.keys]
        with opened(self.source.url, *self.source.table.split(".", 1)) as table:
            for row in table.rows(names, names[0], (None, None)):
                if mark_of(texts := self._texts(row)) in marks:
                    keys[texts] = tuple(row)
        return keys

    def _known(self, keys: Mapping[KeyTexts, Key]) -> dict[KeyTexts, Mapping[str, Any]]:
        """Keys of the lake to the values of their sequence columns, where the rows' own values order them."""
        if not self.place.source_columns:
            return {texts: {} for texts in keys}
        sequences: dict[KeyTexts, Mapping[str, Any]] = {}
        kinds = [self._kinds[name] for name in self.schema.keys]
        for *row, gddl in self._lake_rows((*self.schema.keys, GDDL)):
            texts = self._texts([key_value(value, kind) for value, kind in zip(row, kinds, strict=True)])
            if texts in keys:
                value = gddl["sequence"]
                values = list(value.values()) if isinstance(value, dict) else [value]
                sequences[texts] = dict(zip(self.schema.sequence, values, strict=True))
        return sequences

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
        names = self.columns.source[: self.columns.keys]

        def made(sa: Any, table: Any) -> Sequence[Any]:
            if len(names) == 1:
                return (table.c[names[0]].in_([key[0] for key in keys]),)
            pairs = [[table.c[name] == value for name, value in zip(names, key, strict=True)] for key in keys]
            return (sa.or_(*(sa.and_(*pair) for pair in pairs)),)

        return made

    # Files

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """A file of the rows, inserts all of them."""
        columns = [self._column(name) for name in self.columns.source[: self.columns.keys]]
        made = []
        for batch in batches:
            self.run.go_on()
            self.rate.take(batch.num_rows)
            keys = zip(*(values_of(batch.column(c.in_files), c) for c in columns), strict=True)
            self._seen.update(self._texts(key) for key in keys if None not in key)
            made.append(batch)
        table = in_one_schema(made, self.source.schema)
        self.rows += table.num_rows
        self._keep(table, "I", self.place.placed)

    def _delete(self, keys: Mapping[KeyTexts, Key], known: Mapping[KeyTexts, Mapping[str, Any]]) -> None:
        """A file of deletes; of keys that the lake has not either there is nothing to delete."""
        chosen = [texts for texts in keys if texts in known]
        self.absent += len(keys)
        names = [self._in_files(name) for name in self.columns.source[: self.columns.keys]]
        values = dict(zip(names, zip(*(keys[texts] for texts in chosen), strict=True), strict=True)) if chosen else {}
        sequences = {
            self._own_in_files(name): [known[texts][name] for texts in chosen] for name in self.place.source_columns
        }
        columns = [
            pa.array((sequences | values).get(f.name, [None] * len(chosen)), f.type) for f in self.source.schema
        ]  # fmt: skip
        self._keep(pa.table(columns, schema=self.source.schema), "D", self.place.placed)

    def _in_files(self, name: str) -> str:
        return self._column(name).in_files

    def _column(self, name: str) -> SourceColumn:
        return next(column for column in self.source.columns if column.name == name)

    def _own_in_files(self, sequence: str) -> str:
        wanted = sequence.lower()
        return next(c.in_files for c in self.source.columns if renamed(c.name, self.run.spec).lower() == wanted)

    def _keep(self, table: pa.Table, op: str, placed: Mapping[str, Any]) -> None:
        if not table.num_rows:
            return
        kinds = {landed_name(column.name).lower(): column.type for column in self.schema.data}
        columns: dict[str, Any] = {self.run.dialect.op_column: pa.repeat(op, table.num_rows)}
        for name, value in placed.items():
            one = pa.array([value], self.place.types[name])
            if str(kinds.get(name.lower())) == "string" and pa.types.is_timestamp(one.type):
                one = pa.array([value.astimezone(UTC).isoformat(" ")])
            columns[name] = pa.repeat(one[0], table.num_rows)
        columns |= {name: table.column(name) for name in table.column_names}
        fields = {field.name: field for field in table.schema}
        whole = pa.table(columns)
        self.files.write(whole.cast(pa.schema([fields.get(field.name, field) for field in whole.schema])))
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
