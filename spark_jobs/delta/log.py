"""Writes Delta logs: commits with actions as in Delta's protocol, checkpoints, and clean-up.

`deltalake` 1.6 commits neither files of the change data feed (`cdc`) nor the removal of a file whose path another
writer has escaped differently in the log; its call for properties gives tables of reader version 3 the feature
`variantType`, which other readers refuse.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.sql_types import parts
from airflow_gddl.stores import Storage
from spark_jobs.delta.commits import OURS
from spark_jobs.delta.table_definition import WITH_VECTORS, TableDefinition
from spark_jobs.rules.arrays import DeltaSchema
from spark_jobs.rules.delta_values import PartitionText

Action = Mapping[str, Any]
_ESCAPED = re.compile(r"""[\x00-\x20\x7f"#%<>?\\^`{|}\[\]]""")
CDF = "delta.enableChangeDataFeed"
_CLUSTERING = "delta.clustering"
_CDF_FEATURE, _CDF_WRITER, _FEATURES_WRITER = "changeDataFeed", 4, 7


def commit(storage: Storage, path: str, version: int, actions: Iterable[Action]) -> None:
    """Write the commit of a version, if absent.

    Raises:
        RetriableError: `DELTA_CONFLICT`: another writer has changed the table.
    """
    place = join(path, "_delta_log", f"{version:020d}.json")
    if not storage.create_once(place, _lines(actions)):
        remedy = "another writer changed the table; run again"
        raise RetriableError("DELTA_CONFLICT", f"{place} is there already", where=path, remedy=remedy)


def _lines(actions: Iterable[Action]) -> bytes:
    return "".join(json.dumps(a, ensure_ascii=False, separators=(",", ":")) + "\n" for a in actions).encode()


def create(storage: Storage, path: str, actions: Iterable[Action]) -> None:
    """Write the table's first commit, unless another writer has."""
    storage.create(join(path, "_delta_log", f"{0:020d}.json"), _lines(actions))


def creation(definition: TableDefinition, now: int, *, liquid: bool) -> list[Action]:
    """The first commit of a table, of the oldest protocol that its columns and properties allow.

    Args:
        now: milliseconds since 1970.
        liquid: Delta's own clustering, of which Spark's OPTIMIZE knows; else `table_definition.CLUSTER_BY`.
    """
    schema, clusters = DeltaSchema(definition.columns), definition.cluster_by if liquid else ()
    properties = {**definition.created_with, **({} if liquid else definition.ordering)}
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
    write = ["domainMetadata", "clustering"] if clustered else []
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
    table: DeltaTable, *, schema: str | None = None, partition_by: Sequence[str] | None = None,
    changed: Mapping[str, str] | None = None, description: str = "",
) -> Action:  # fmt: skip
    """The table's metadata; arguments replace its schema (JSON), description, partitions or properties."""
    known = table.metadata()
    optional = {"name": known.name, "description": description or known.description, "createdTime": known.created_time}
    return {
        "metaData": {
            "id": str(known.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema or table.schema().to_json(),
            "partitionColumns": list(known.partition_columns if partition_by is None else partition_by),
            "configuration": {**known.configuration, **(changed or {})},
            **{name: value for name, value in optional.items() if value is not None},
        }
    }


def commented(schema: str, comments: Mapping[str, str]) -> str:
    """A table's schema (JSON) with comments of columns."""
    changed = json.loads(schema)
    for field in changed["fields"]:
        if field["name"] in comments:
            field["metadata"] = {**(field.get("metadata") or {}), "comment": comments[field["name"]]}
    return json.dumps(changed)


def change_feed_protocol(table: DeltaTable, changed: Mapping[str, str]) -> list[Action]:
    """The protocol action that a change data feed requires; empty if the table meets it."""
    has = table.protocol()
    features = list(has.writer_features or ())
    if not is_on(changed, CDF) or _CDF_FEATURE in features:
        return []
    versions: dict[str, Any] = {"minReaderVersion": has.min_reader_version}
    if has.min_writer_version < _FEATURES_WRITER:
        versions["minWriterVersion"] = max(has.min_writer_version, _CDF_WRITER)
        return [{"protocol": versions}] if has.min_writer_version < _CDF_WRITER else []
    versions |= {"minWriterVersion": has.min_writer_version, "writerFeatures": [*features, _CDF_FEATURE]}
    if has.reader_features is not None:
        versions["readerFeatures"] = list(has.reader_features)
    return [{"protocol": versions}]


def is_on(properties: Mapping[str, Any], name: str) -> bool:
    """Whether a property is true, ignoring case."""
    return any(key.lower() == name.lower() and str(value).lower() == "true" for key, value in properties.items())


def log_path(path: str) -> str:
    """A relative path as written in the log: a URI with unescaped non-ASCII letters, as Spark writes it."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", path)


COMMITS_PER_CHECKPOINT = 10
"""Default of Delta on Spark, unless the table sets an interval."""
COMMITS_PER_CLEANUP = 100
"""A search for expired commits lists the whole log: on S3 one call per thousand."""

_INTERVAL = "delta.checkpointInterval"
_CLEANUP = "delta.enableExpiredLogCleanup"
_LOG = logging.getLogger(__name__)


def keep_log_short(delta: DeltaTable) -> None:
    """After a commit, if due: write a checkpoint of the version before it, and remove expired commits now and then.

    The version before is at hand; this one would have to be read first. Failures are only logged: the
    commit is made, and the next checkpoint covers this one.

    Args:
        delta: at the version before, the handle that made the commit.
    """
    settings, number = delta.metadata().configuration, delta.version() + 1
    interval = _interval(settings)
    if number % interval:
        return
    try:
        delta.create_checkpoint()
        if number % COMMITS_PER_CLEANUP < interval and str(settings.get(_CLEANUP, "true")).lower() == "true":
            delta.cleanup_metadata()
    except Exception as error:  # noqa: BLE001 - the commit is made in any case
        _LOG.warning("no checkpoint of %s at version %d: %s", delta.table_uri, delta.version(), error)


def _interval(settings: Mapping[str, Any]) -> int:
    interval = str(settings.get(_INTERVAL) or "")
    return int(interval) if interval.isdecimal() and int(interval) else COMMITS_PER_CHECKPOINT
