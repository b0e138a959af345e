"""Delta logs: commits and checkpoints written with actions as in Delta's protocol, and a batch's transactions read.

The transactions are the same in all engines, so that one engine can finish a batch of another. Commits are written
here, since `deltalake` 1.6 commits neither files of the change data feed (`cdc`) nor the removal of a file whose path
another writer has escaped differently in the log; its call for properties gives tables of reader version 3 the feature
`variantType`, which other readers refuse.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import deltalake

from airflow_gddl.contract.codes import DELTA_CONFLICT
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.features import ROW_TRACKING
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import MainCounts
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.sql_types import parts
from airflow_gddl.stores import Storage, read_if_there
from airflow_gddl.stores.scratch import scratch
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.rules.arrays import DeltaSchema
from spark_jobs.rules.delta_values import PartitionText
from spark_jobs.tables import row_ids
from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.replayed_log import COMMIT, POINTER, ReplayedLog, commit_path, copy_log, pointed_version
from spark_jobs.tables.row_ids import RowIdColumns
from spark_jobs.tables.table_definition import WITH_VECTORS, TableDefinition

Action = Mapping[str, Any]
_ESCAPED = re.compile(r"""[\x00-\x20\x7f"#%<>?\\^`{|}\[\]]""")
CDF = "delta.enableChangeDataFeed"
_CLUSTERING = "delta.clustering"
_CDF_FEATURE, _CDF_WRITER, _FEATURES_WRITER = "changeDataFeed", 4, 7
_FEATURES_READER = 3


def commit(storage: Storage, path: str, version: int, actions: Iterable[Action]) -> bytes:
    """Write the commit of a version, if absent; returns it.

    Raises:
        RetriableError: `DELTA_CONFLICT`: another writer has changed the table.
    """
    place, data = commit_path(path, version), lines(actions)
    if not storage.create_once(place, data):
        raise conflict(path, f"{place} is there already")
    return data


def conflict(path: str, what: str) -> RetriableError:
    return RetriableError(DELTA_CONFLICT, what, where=path, remedy="another writer changed the table; run again")


def lines(actions: Iterable[Action]) -> bytes:
    """Content of a commit."""
    return "".join(json.dumps(a, ensure_ascii=False, separators=(",", ":")) + "\n" for a in actions).encode()


def create(storage: Storage, path: str, actions: Iterable[Action]) -> None:
    """Write the table's first commit, unless another writer has."""
    storage.create(commit_path(path, 0), lines(actions))


def creation(definition: TableDefinition, now: int, *, liquid: bool) -> list[Action]:
    """The first commit of a table, of the oldest protocol that its columns and properties allow.

    Args:
        now: milliseconds since 1970.
        liquid: Delta's own clustering, of which Spark's OPTIMIZE knows; else `table_definition.CLUSTER_BY`.
    """
    schema, clusters = DeltaSchema(definition.columns), definition.cluster_by if liquid else ()
    properties = {**definition.created_with, **({} if liquid else definition.ordering)}
    properties |= row_ids.new_properties() if is_on(properties, ROW_TRACKING) else {}
    metadata = {
        "id": str(uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": schema.to_json(),
        "partitionColumns": list(definition.partition_by), "configuration": properties, "createdTime": now,
    }  # fmt: skip
    made = [info(now, "CREATE TABLE", OURS, {}), _protocol(definition, properties, clustered=bool(clusters))]
    made.append({"metaData": metadata})
    if clusters:
        domain = {"clusteringColumns": [[name] for name in clusters], "domainName": _CLUSTERING}
        made.append({"domainMetadata": {"domain": _CLUSTERING, "configuration": json.dumps(domain), "removed": False}})
    return made


def _protocol(definition: TableDefinition, properties: Mapping[str, str], *, clustered: bool) -> Action:
    scalars = {str(part) for column in definition.columns for part in parts(column.type)}
    read = ["timestampNtz"] if "timestamp_ntz" in scalars else []
    read += ["deletionVectors"] if is_on(properties, WITH_VECTORS) else []
    write = ["domainMetadata"] if clustered or is_on(properties, ROW_TRACKING) else []
    write += ["clustering"] if clustered else []
    write += ["rowTracking"] if is_on(properties, ROW_TRACKING) else []
    feed = [_CDF_FEATURE] if is_on(properties, CDF) else []
    if not read and not write:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": _CDF_WRITER if feed else 2}}
    versions: dict[str, Any] = {"minReaderVersion": 3 if read else 1, "minWriterVersion": _FEATURES_WRITER}
    named = {"readerFeatures": read} if read else {}
    return {"protocol": {**versions, **named, "writerFeatures": ["appendOnly", "invariants", *read, *write, *feed]}}


def info(now: int, operation: str, user_metadata: str, metrics: Mapping[str, int], **parameters: str) -> Action:
    """The commit's writer and operation.

    Args:
        now: milliseconds since 1970.
    """
    return {
        "commitInfo": {
            "timestamp": now, "operation": operation, "operationParameters": parameters, "engineInfo": "airflow-gddl",
            "operationMetrics": {name: str(value) for name, value in metrics.items()}, "userMetadata": user_metadata,
        }
    }  # fmt: skip


def transaction(app: str, version: int, now: int) -> Action:
    return {"txn": {"appId": app, "version": version, "lastUpdated": now}}


def add(
    path: str, size: int, partition: PartitionText, *, now: int, data_change: bool, statistics: str
) -> dict[str, Any]:
    """A data file.

    Args:
        path: as written in the log, see `log_path`.
    """
    return {
        "add": {
            "path": path, "partitionValues": dict(partition), "size": size, "modificationTime": now,
            "dataChange": data_change, "stats": statistics,
        }
    }  # fmt: skip


def remove(
    path: str, size: int, partition: PartitionText, *, now: int, data_change: bool, vector: Mapping[str, Any] | None
) -> Action:
    """Removal of a data file; `path` and `vector` exactly as in its `add`."""
    return {
        "remove": {
            "path": path, "deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True,
            "partitionValues": dict(partition), "size": size, **({"deletionVector": vector} if vector else {}),
        }
    }  # fmt: skip


def cdc(path: str, size: int, partition: PartitionText) -> Action:
    """A file of the change data feed."""
    return {"cdc": {"path": path, "partitionValues": dict(partition), "size": size, "dataChange": False}}


def metadata(
    log: ReplayedLog, *, schema: str | None = None, partition_by: Sequence[str] | None = None,
    changed: Mapping[str, str] | None = None, description: str = "",
) -> Action:  # fmt: skip
    """The table's metadata; arguments replace its schema (JSON), description, partitions or properties."""
    replaced = {
        "schemaString": schema,
        "description": description or None,
        "partitionColumns": None if partition_by is None else list(partition_by),
    }
    known = {**log.metadata, "configuration": {**log.properties, **(changed or {})}}
    return {"metaData": known | {name: value for name, value in replaced.items() if value is not None}}


def commented(schema: str, comments: Mapping[str, str]) -> str:
    """A table's schema (JSON) with comments of columns."""
    changed = json.loads(schema)
    for column in changed["fields"]:
        if column["name"] in comments:
            column["metadata"] = {**(column.get("metadata") or {}), "comment": comments[column["name"]]}
    return json.dumps(changed)


def setting(log: ReplayedLog, done: Action, changed: Mapping[str, str]) -> Sequence[Action]:
    """Actions of the commit that sets properties, with what they ask of the protocol and of the files.

    Args:
        done: the commit's `info`.
    """
    if not is_on(changed, ROW_TRACKING) or RowIdColumns.of(log.properties):
        return with_row_ids(log, [done, *change_feed_protocol(log, changed), metadata(log, changed=changed)])
    feed = [_CDF_FEATURE] if is_on(changed, CDF) else []
    protocol = _with_writer_features(log.protocol, [*row_ids.FEATURES, *feed])
    named = metadata(log, changed={**changed, **row_ids.begun_properties(log.properties)})
    begun = replace(log, protocol=protocol, metadata=named["metaData"])
    files = [{"add": {**add, "dataChange": False}} for add in log.files.values()]
    return with_row_ids(begun, [done, {"protocol": protocol}, named, *files])


def with_row_ids(log: ReplayedLog, actions: Sequence[Action], *, keeps_rows: bool = True) -> Sequence[Action]:
    """Actions of the commit after a version, with what they have to say of row ids, if the table has them.

    Args:
        keeps_rows: see `row_ids.assigned`.
    """
    return row_ids.assigned(log, actions, keeps_rows=keeps_rows) if row_ids.are_assigned(log) else actions


def with_features(protocol: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A protocol that names further features of readers, which are features of writers, too."""
    readers = list(dict.fromkeys([*(protocol.get("readerFeatures") or ()), *names]))
    named = {"minReaderVersion": _FEATURES_READER, "readerFeatures": readers}
    return {**_with_writer_features(protocol, names), **named}


def _with_writer_features(protocol: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A protocol that names further features of writers.

    Raises:
        DeclinedError: it is one of versions that imply more than this engine supports.
    """
    writer = protocol["minWriterVersion"]
    if _CDF_WRITER < writer < _FEATURES_WRITER:
        raise DeclinedError(f"its protocol is of version {writer}")
    # A table with a constraint or a generated column, which these versions imply, too, is none that we write.
    implied = ["appendOnly", "invariants", *([_CDF_FEATURE] if writer == _CDF_WRITER else [])]
    has = protocol.get("writerFeatures") if writer == _FEATURES_WRITER else implied
    features = list(dict.fromkeys([*(has or ()), *names]))
    return {**protocol, "minWriterVersion": _FEATURES_WRITER, "writerFeatures": features}


def change_feed_protocol(log: ReplayedLog, changed: Mapping[str, str]) -> list[Action]:
    """The protocol action that a change data feed requires; empty if the table meets it."""
    has = log.protocol
    writer = has["minWriterVersion"]
    if not is_on(changed, CDF) or _CDF_FEATURE in log.writer_features:
        return []
    if writer < _FEATURES_WRITER:
        return [{"protocol": {**has, "minWriterVersion": _CDF_WRITER}}] if writer < _CDF_WRITER else []
    return [{"protocol": _with_writer_features(has, [_CDF_FEATURE])}]


def is_on(properties: Mapping[str, Any], name: str) -> bool:
    """Whether a property is true, ignoring case."""
    return any(key.lower() == name.lower() and str(value).lower() == "true" for key, value in properties.items())


def log_path(path: str) -> str:
    """A relative path as written in the log: a URI with unescaped non-ASCII letters, as Spark writes it."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", path)


COMMITS_PER_CHECKPOINT = 10
"""Default of Delta on Spark, unless the table sets an interval."""
COMMITS_PER_CLEANUP = 100
"""A search for expired commits lists the whole log: on S3 one call per thousand."""

_INTERVAL = "delta.checkpointInterval"
_CLEANUP = "delta.enableExpiredLogCleanup"
_LOG = logging.getLogger(__name__)


def keep_log_short(storage: Storage, path: str, log: ReplayedLog, opened: Callable[[], deltalake.DeltaTable]) -> None:
    """After a commit, if due: write a checkpoint of the version before it, and remove expired commits now and then.

    Failures are only logged: the commit is made, and the next checkpoint covers this one.

    Args:
        log: of the version before.
        opened: makes a handle of that version.
    """
    number, interval = log.version + 1, _interval(log.properties)
    if number % interval:
        return
    try:
        if is_s3(path) and "v2Checkpoint" not in log.reader_features:
            _checkpoint_of_copy(storage, path, log.version)
        else:
            opened().create_checkpoint()
        if number % COMMITS_PER_CLEANUP < interval and str(log.properties.get(_CLEANUP, "true")).lower() == "true":
            opened().cleanup_metadata()
    except Exception as error:  # noqa: BLE001 - the commit is made in any case
        _LOG.warning("no checkpoint of %s at version %d: %s", path, log.version, error)


def _checkpoint_of_copy(storage: Storage, path: str, version: int) -> None:
    """By a copy of the log: `deltalake` reads each commit twice, and each read is a request."""
    with scratch("checkpoint") as folder:
        copy_log(storage, path, version, folder)
        log = folder / "_delta_log"
        before = {file.name for file in log.iterdir()}
        deltalake.DeltaTable(str(folder), version=version).create_checkpoint()
        for file in sorted(log.iterdir(), key=lambda file: file.name == POINTER):  # a checkpoint that it names is there
            if file.name not in before or file.name == POINTER:
                storage.write(join(path, "_delta_log", file.name), file.read_bytes())


def _interval(settings: Mapping[str, Any]) -> int:
    interval = str(settings.get(_INTERVAL) or "")
    return int(interval) if interval.isdecimal() and int(interval) else COMMITS_PER_CHECKPOINT


_STATED = re.compile(r"\d{20}\.(json|checkpoint\..+)")
"""Commits and checkpoints of any kind; beside them lie checksums, and what a writer that was interrupted left."""
_NEWEST_COMMITS = 50
_MERGED = {name: f"numTargetRows{name.capitalize()}" for name in ("inserted", "updated", "deleted")}
OURS = "gddl"
"""Prefix of the user metadata of this project's commits."""


@dataclass(frozen=True, kw_only=True)
class DeltaCommit:
    """A commit of a table, as its log describes it.

    Attributes:
        operation: as named by its writer, e.g. `RESTORE`.
        ours: it was made by this project.
        changes_data: rows were added, removed or changed. OPTIMIZE and VACUUM only move rows, or remove old files.
        transactions: application to the version that the commit states of it.
        added: paths of files with new rows, without escapes.
        removed: paths of files that the table has no more, also where their rows only moved.
    """

    version: int
    operation: str
    ours: bool
    changes_data: bool
    transactions: Mapping[str, int] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeltaCommits:
    """The log of Delta tables, by path."""

    storage: Storage
    _checkpoints: dict[str, int] = field(default_factory=dict, compare=False)

    def exists(self, table: str) -> bool:
        """Whether the table exists: its log has a commit or a checkpoint."""
        return any(_STATED.fullmatch(item.name) for item in self.storage.list(join(table, "_delta_log")))

    def version(self, table: str) -> int | None:
        """The newest version; None when there is no table."""
        return max((number for number, _ in self._commits(table)), default=None)

    def since(self, table: str, version: int) -> list[DeltaCommit] | None:
        """Commits after a version, oldest first; None where the log lacks that commit and all later ones."""
        log, commits, has_commits = join(table, "_delta_log"), [], False
        for item in self.storage.list(log, f"{version:020d}"):
            match = COMMIT.fullmatch(item.name)
            has_commits = has_commits or match is not None
            if match and int(match[1]) > version:
                commits.append(commit_of(int(match[1]), self.storage.read(item.path)))
        return commits if has_commits else None

    def metrics(self, table: str, user_metadata: str) -> dict[str, int]:
        """Operation metrics of the newest commit with this user metadata, among the last 50; empty without one."""
        newest = sorted(self._commits(table), reverse=True)[:_NEWEST_COMMITS]
        for _, path in newest:
            info = _info_of(map(json.loads, self.storage.read(path).splitlines()))
            label, _, stated = str(info.get("userMetadata", "")).partition(" {")
            if label == user_metadata:
                values = {**info.get("operationMetrics", {}), **(json.loads(f"{{{stated}") if stated else {})}
                return {k: int(v) for k, v in values.items() if str(v).isdigit()}
        return {}

    def last_transaction(self, table: str, app: str) -> int:
        """Highest version that an application committed, among the newest commits; -1 when none."""
        actions = (
            json.loads(line) for _, path in self._commits(table) for line in self.storage.read(path).splitlines()
        )
        return max((int(a["txn"]["version"]) for a in actions if a.get("txn", {}).get("appId") == app), default=-1)

    def _commits(self, table: str) -> Iterator[tuple[int, str]]:
        """The newest commits, oldest first, from shortly before the last checkpoint.

        A log keeps a month of commits; a continuous table makes thousands a day.
        """
        log = join(table, "_delta_log")
        first = self._checkpoint(log) - _NEWEST_COMMITS
        after = f"{first:020d}" if first > 0 else ""
        for file in self.storage.list(log, after):
            if match := COMMIT.fullmatch(file.name):
                yield int(match[1]), file.path

    def _checkpoint(self, log: str) -> int:
        """Version of the last checkpoint at the first call; 0 where there is none."""
        if log not in self._checkpoints:
            newest = pointed_version(read_if_there(self.storage, join(log, POINTER)))
            if newest is None:
                return 0
            self._checkpoints[log] = newest
        return self._checkpoints[log]


def merge_metrics(counts: MainCounts) -> dict[str, int]:
    """Operation metrics in the names of Delta's MERGE on Spark."""
    return {metric: getattr(counts, name) for name, metric in _MERGED.items()}


def main_counts(metrics: Mapping[str, int]) -> MainCounts:
    """Row counts of a commit to the replica by its metrics, for every engine and step."""
    if _MERGED["inserted"] in metrics:
        return MainCounts(**{name: metrics.get(metric, 0) for name, metric in _MERGED.items()})
    swept = metrics.get("numDeletedRows", 0) + metrics.get("numUpdatedRows", 0)
    return MainCounts(inserted=metrics.get("numOutputRows", 0), deleted=swept)


def commit_of(version: int, data: bytes) -> DeltaCommit:
    """What the content of a commit says."""
    actions = [json.loads(line) for line in data.splitlines()]
    info = _info_of(actions)
    files = [action.get("add") or action.get("remove") for action in actions if "add" in action or "remove" in action]
    return DeltaCommit(
        version=version,
        operation=str(info.get("operation", "unknown")),
        ours=str(info.get("userMetadata", "")).split(" ")[0] == OURS,
        changes_data=any(file.get("dataChange", True) for file in files),
        transactions={a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a},
        added=tuple(unquote(a["add"]["path"]) for a in actions if "add" in a and a["add"].get("dataChange", True)),
        removed=tuple(unquote(a["remove"]["path"]) for a in actions if "remove" in a),
    )


def _info_of(actions: Iterable[Action]) -> Mapping[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


APPEND, QUARANTINE, TOMBSTONES, TRUNCATE, FOLD_AGAIN, MERGE, SWEEP, HISTORY = (
    f"gddl:{step}"
    for step in ("append", "quarantine", "tombstones", "truncate", "fold_again", "merge", "sweep", "history")
)
REWRITE = "refresh:rewrite"
"""The change table by the row's current settings."""
REFRESH = "refresh:"
"""Prefix of the steps of a rebuild."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def version_of(plan: BatchPlan) -> int:
    """Microseconds of the plan's time since 1970.

    Plan times of a table always increase (`pending.moment`), also those of a new ledger: a table that has the
    transactions of a lost ledger never mistakes a new one for an old one.
    """
    return round((datetime.fromisoformat(plan.planned_at) - _EPOCH) / timedelta(microseconds=1))


def app_of(app: str, shard: str) -> str:
    """The name of a step's transactions; each shard of a table has its own.

    Plans of shards are made and carried on in any order, so that the versions of one say nothing of another's.
    """
    return f"{app}@{shard}" if shard else app


def user_metadata(app: str, version: int, metrics: Mapping[str, int] | None = None) -> str:
    """User metadata of a transaction's commit, by which its metrics are found.

    Args:
        metrics: stated here, where another writer states those of the commit.
    """
    return f"gddl {app} {version}{f' {json.dumps(metrics)}' if metrics else ''}"


def is_later(transactions: Mapping[str, int], shard: str, known: int) -> bool:
    """Whether transactions of a commit are of a later plan of the table, or shard, than the ledger knows.

    Sweeps don't count: a plan without readable files may be dropped after its sweep.

    Args:
        known: version of the ledger's newest plan.
    """
    later = (app.partition("@") for app, version in transactions.items() if version > known)
    kept = (APPEND, TOMBSTONES, MERGE, HISTORY)
    return any(of == shard and (step in kept or step.startswith(REFRESH)) for step, _, of in later)
