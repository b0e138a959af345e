"""Delta tables by path: snapshots, reads of whole files, and commits that name the files they add and remove."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_commits import OURS, DeltaCommits
from spark_jobs.engines.delta_rs.checkpoints import LEFT_TO_US, keep_log_short
from spark_jobs.engines.delta_rs.features import missing_features, require_creatable_types, require_known
from spark_jobs.engines.delta_rs.properties import conflict, set_properties
from spark_jobs.engines.delta_rs.snapshots import DataFile, TableSnapshot
from spark_jobs.engines.delta_rs.statistics import file_statistics, statistics
from spark_jobs.engines.skipping import ColumnPath, indexed_columns
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import user_metadata
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.arrow_schema import DeltaSchema, arrow_type, schema_of

__all__ = ["DataFile", "TableSnapshot", "Tables", "Write", "empty_of"]

Clock = Callable[[], datetime]


@dataclass(frozen=True, kw_only=True)
class Write:
    """One commit.

    Attributes:
        app, version: the transaction; a commit without one can be made any number of times to the same end.
        added: rows of each new file.
        removed: files that vanish; null: all there are, and `schema` takes the place of the table's.
        metrics: as Spark's Delta names them.
        indexed: columns to write statistics of; null: those that the table's properties name.
        once: ask first whether the transaction has been made.
        rearranged: the same rows in other files; who follows the table's changes passes over it.
    """

    app: str = ""
    version: int = 0
    added: Sequence[pa.Table] = ()
    removed: Sequence[DataFile] | None = ()
    schema: DeltaSchema | None = None
    metrics: Mapping[str, int] = field(default_factory=dict)
    indexed: Sequence[ColumnPath] | None = None
    once: bool = True
    rearranged: bool = False


class Tables:
    """Tables of one run of one table; snapshots are kept until they are written to, for the run holds the claim."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.storage, self._clock = storage, clock
        self.log = DeltaCommits(storage)
        self._snapshots: dict[str, TableSnapshot | None] = {}
        self._transactions: dict[tuple[str, str], int] = {}
        self._versions: dict[str, int] = {}
        self._there: set[str] = set()

    def snapshot(self, path: str) -> TableSnapshot | None:
        """The newest version; None where there is no table.

        Raises:
            DeclinedError: it has something that this engine doesn't know.
        """
        if path not in self._snapshots:
            self._snapshots[path] = self._open(path)
        return self._snapshots[path]

    def _open(self, path: str) -> TableSnapshot | None:
        if "://" not in path and not Path(path, "_delta_log").is_dir():
            return None
        try:
            delta = DeltaTable(path, storage_options=self.storage.options_of(path))
        except TableNotFoundError:
            return None
        except Exception as error:
            if not self.log.exists(path):
                return None
            raise require_known(error) from error
        require_known(delta)
        self._there.add(path)
        return TableSnapshot(path, delta, schema_of(delta.schema().to_json()))

    def existing(self, path: str) -> TableSnapshot:
        found = self.snapshot(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def exists(self, path: str) -> bool:
        if path not in self._there and self.snapshot(path) is not None:
            self._there.add(path)
        return path in self._there

    def last_transaction(self, path: str, app: str) -> int:
        """See `Engine.last_transaction`."""
        if (path, app) not in self._transactions:
            found = self.snapshot(path)
            version = None if found is None else found.delta.transaction_version(app)
            self._transactions[path, app] = -1 if version is None else version
        return self._transactions[path, app]

    def forget(self, path: str) -> None:
        """Whatever is known of a table that is about to change."""
        self._snapshots.pop(path, None)
        self._versions.pop(path, None)
        self._transactions = {known: version for known, version in self._transactions.items() if known[0] != path}

    def version(self, path: str) -> int | None:
        """The newest version, by our own last commit or by the log; None where there is no table."""
        return self._versions[path] if path in self._versions else self.log.version(path)

    def columns(self, path: str) -> tuple[Column, ...]:
        return tuple(c for c in self.existing(path).schema.columns if c.name != GDDL)

    def metrics(self, path: str, app: str, version: int) -> dict[str, int]:
        """Operation metrics of the commit that a transaction made; empty when it made none."""
        return self.log.metrics(path, user_metadata(app, version))

    def read(self, path: str, keep: Callable[[DataFile], bool] | None = None) -> pa.Table:
        """All rows, or those of some files."""
        snapshot = self.existing(path)
        return self.read_files(snapshot, [f for f in snapshot.files if keep is None or keep(f)])

    def read_files(
        self, snapshot: TableSnapshot, files: Sequence[DataFile], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows of files, one after the other, in the table's types.

        Args:
            columns: only these; null: all.
        """
        schema = snapshot.schema.arrow
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        found = [self._read_file(join(snapshot.path, f.path), schema) for f in files]
        return pa.concat_tables(found) if found else schema.empty_table()

    def _read_file(self, path: str, schema: pa.Schema) -> pa.Table:
        if "://" in path:
            with self.storage.open_input(path) as stream:
                return _rows_of(stream, schema)
        return _rows_of(path, schema)

    def create(self, definition: TableDefinition) -> None:
        """Create the table unless it is there."""
        path = definition.path
        if self.exists(path):
            return
        require_creatable_types(definition.columns)
        schema = Schema.from_json(DeltaSchema(definition.columns).to_json())
        DeltaTable.create(
            path,
            schema,
            mode="ignore",
            configuration=dict(definition.created_with),
            storage_options=self.storage.options_of(path),
            raise_if_key_not_exists=False,
        )
        self.forget(path)

    def add_columns(self, path: str, columns: Sequence[Column]) -> None:
        """New columns at the end, null in all rows there are."""
        self._allow(path, columns)
        fields = json.loads(DeltaSchema(tuple(columns)).to_json())["fields"]
        made = Schema.from_json(json.dumps({"type": "struct", "fields": fields})).fields
        self.existing(path).delta.alter.add_columns(made)
        self.forget(path)

    def _allow(self, path: str, columns: Sequence[Column]) -> None:
        """Give the table what Delta asks of one with such columns."""
        delta = self.existing(path).delta
        features = missing_features(delta, columns)
        if features:
            delta.alter.add_feature(features, allow_protocol_versions_increase=True)
            self.forget(path)

    def properties(self, path: str) -> dict[str, str | None]:
        return dict(self.existing(path).delta.metadata().configuration)

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set those that differ from what the table has, in one commit."""
        stored = self.properties(path)
        changed = {name: value for name, value in properties.items() if stored.get(name) != value}
        if changed:
            set_properties(self.storage, path, self.existing(path).delta, changed, self._now())
            self.forget(path)

    def _now(self) -> int:
        return int(self._clock().timestamp() * 1000)

    def restate(self, path: str, indexed: Sequence[ColumnPath]) -> int:
        """Write the statistics of all files anew, the files as they are; how many there are.

        An `add` of a file that is there takes the place of the one before.
        """
        snapshot = self.existing(path)
        actions: list[Any] = [
            AddAction(f.path, f.size, {}, self._now(), False, statistics(self.read_files(snapshot, [f]), indexed))
            for f in snapshot.files
        ]
        if actions:
            self._commit(snapshot, actions, "append", snapshot.schema, Write(rearranged=True))
        return len(actions)

    def commit(self, path: str, write: Write) -> None:
        """Make one commit, or none where its transaction has been made before.

        Raises:
            RetriableError: `DELTA_CONFLICT`: somebody else has written to the table meanwhile.
        """
        if write.app and write.once and self.last_transaction(path, write.app) >= write.version:
            return
        if write.schema is not None:
            self._allow(path, write.schema.columns)
        snapshot = self.existing(path)
        schema = write.schema or snapshot.schema
        indexed = write.indexed
        if indexed is None:
            indexed = indexed_columns(schema.columns, snapshot.delta.metadata().configuration)
        files = [self._add(path, by_name(rows, schema.arrow), indexed, write) for rows in write.added]
        actions: list[Any] = list(files)
        actions += [RemoveAction(f.path, not write.rearranged, self._now(), f.size, {}) for f in write.removed or ()]
        self._commit(snapshot, actions, "overwrite" if write.removed is None else "append", schema, write)

    def _commit(
        self, snapshot: TableSnapshot, actions: list[Any], mode: Literal["append", "overwrite"], schema: DeltaSchema,
        write: Write,
    ) -> None:  # fmt: skip
        path = snapshot.path
        told = Schema.from_json(schema.to_json())
        self.forget(path)
        try:
            snapshot.delta.create_write_transaction(
                actions, mode, told, commit_properties=_properties(write), post_commithook_properties=LEFT_TO_US
            )
        except CommitFailedError as error:
            raise conflict(path, str(error)) from error
        keep_log_short(snapshot.delta)
        self._versions[path] = snapshot.delta.version() + 1  # without retries it is the next, or none

    def _add(self, path: str, rows: pa.Table, indexed: Sequence[ColumnPath], write: Write) -> AddAction:
        name = f"part-00000-{uuid4()}-c000.snappy.parquet"
        if "://" in path:
            sink = io.BytesIO()
            _save(rows, sink)
            size = sink.tell()
            self.storage.write(join(path, name), sink.getvalue())
        else:
            _save(rows, join(path, name))
            size = Path(path, name).stat().st_size
        return AddAction(name, size, {}, self._now(), not write.rearranged, statistics(rows, indexed))


def _properties(write: Write) -> CommitProperties:
    told: dict[str, Any] = {"operationMetrics": {name: str(value) for name, value in write.metrics.items()}}
    if not write.app:
        told["userMetadata"] = OURS
        return CommitProperties(custom_metadata=told, max_commit_retries=0)
    told["userMetadata"] = user_metadata(write.app, write.version)
    transaction = Transaction(write.app, write.version)
    return CommitProperties(custom_metadata=told, max_commit_retries=0, app_transactions=[transaction])


def _rows_of(source: Any, schema: pa.Schema) -> pa.Table:
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    there = set(file.schema_arrow.names)
    return by_name(file.read([n for n in schema.names if n in there], use_threads=False), schema)


def _save(rows: pa.Table, target: Any) -> None:
    kept = file_statistics(rows)
    pq.write_table(
        rows, target, compression="snappy", coerce_timestamps="us", store_schema=False, write_statistics=kept
    )


def empty_of(columns: Sequence[Column]) -> pa.Table:
    """No rows of these columns."""
    return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in columns]).empty_table()
