"""AWS Glue Data Catalog: entries as Athena, and Spark on EMR and Glue, read Delta tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from airflow_gddl.contract import durations
from airflow_gddl.contract.codes import CATALOG_UNREACHABLE
from airflow_gddl.contract.extensions import CatalogSpec, EntryName, code_of_glue
from airflow_gddl.contract.layout import same_place
from airflow_gddl.contract.packages import needed_by
from spark_jobs.rooms.catalogs.catalog_port import (
    CatalogContext,
    CatalogError,
    DeltaTableInfo,
    Entry,
    Registration,
    refused,
)
from spark_jobs.rooms.catalogs.registrar import hive_type

_LONGEST_COLUMN_COMMENT = 255
_LONGEST_DESCRIPTION = 2048
_PARAMETERS = {
    "EXTERNAL": "TRUE",
    "table_type": "DELTA",
    "spark.sql.sources.provider": "delta",
    "classification": "delta",
}
# The values that Spark and Athena write for a Delta table; neither uses them to read files.
_FORMAT = {
    "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
    "Compressed": False,
    "NumberOfBuckets": -1,
    "StoredAsSubDirectories": False,
}
_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_KEPT = ("Owner", "Retention", "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TargetTable")


class GlueCatalog:
    """See `CatalogPort`."""

    alters = frozenset({"columns", "comment", "location", "properties"})

    def __init__(self, spec: CatalogSpec, _around: CatalogContext) -> None:
        self._client = client_of(spec)
        self._at = {} if spec.catalog_id is None else {"CatalogId": spec.catalog_id}
        self._databases: set[str] = set()

    def entry_of(self, info: DeltaTableInfo, properties: Mapping[str, str]) -> Entry:
        columns = {
            c.name.lower(): (hive_type(c.type).lower(), _cut(c.comment, _LONGEST_COLUMN_COMMENT)) for c in info.columns
        }
        return Entry(
            location=same_place(info.location),
            columns=columns,
            comment=_cut(info.comment, _LONGEST_DESCRIPTION),
            properties={**_PARAMETERS, **properties},
        )

    def read(self, name: EntryName) -> Entry | None:
        table = self._get(name)
        if table is None:
            return None
        storage = table.get("StorageDescriptor") or {}
        parameters = dict(table.get("Parameters") or {})
        kind = parameters.get("spark.sql.sources.provider") or parameters.get("table_type") or "none"
        columns = {c["Name"]: (c.get("Type", ""), c.get("Comment", "")) for c in storage.get("Columns") or ()}
        return Entry(
            location=same_place(storage.get("Location") or ""),
            columns=columns,
            comment=table.get("Description") or "",
            properties=parameters,
            problem="" if kind.lower() == "delta" else f"it is no Delta table (provider {kind})",
        )

    def create(self, registration: Registration) -> None:
        self._require_database(registration.name.database)
        made = _table_input(registration, {})
        # Another job may create it first; the next run compares.
        with translated(), suppress(self._client.exceptions.AlreadyExistsException):
            self._client.create_table(DatabaseName=registration.name.database, TableInput=made, **self._at)

    def alter(self, registration: Registration) -> None:
        table = self._get(registration.name) or {}
        made = _table_input(registration, table)
        with translated():
            # Archived versions count against a quota.
            self._client.update_table(
                DatabaseName=registration.name.database, TableInput=made, SkipArchive=True, **self._at
            )

    def _get(self, name: EntryName) -> dict[str, Any] | None:
        with translated():
            try:
                response = self._client.get_table(DatabaseName=name.database, Name=name.table, **self._at)
            except self._client.exceptions.EntityNotFoundException:
                return None
            return dict(response["Table"])

    def _require_database(self, name: str) -> None:
        if name in self._databases:
            return
        with translated():
            try:
                self._client.get_database(Name=name, **self._at)
            except self._client.exceptions.EntityNotFoundException:
                with suppress(self._client.exceptions.AlreadyExistsException):
                    self._client.create_database(DatabaseInput={"Name": name}, **self._at)
        self._databases.add(name)


def _table_input(registration: Registration, table: Mapping[str, Any]) -> dict[str, Any]:
    """Glue's `TableInput`: this project's fields, and the other fields of an existing entry."""
    entry, storage = registration.entry, dict(table.get("StorageDescriptor") or {})
    held = {c["Name"]: c for c in storage.get("Columns") or ()}
    location = registration.info.location
    serde = dict(storage.get("SerdeInfo") or {"SerializationLibrary": _SERDE})
    serde["Parameters"] = {"serialization.format": "1", **serde.get("Parameters", {}), "path": location}
    comment = entry.comment or table.get("Description") or ""
    return {
        **{name: table[name] for name in _KEPT if table.get(name) is not None},
        "Name": registration.name.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {**(table.get("Parameters") or {}), **entry.properties},
        "StorageDescriptor": {
            **_FORMAT,
            **storage,
            "Columns": [_column(name, *one, held.get(name, {})) for name, one in entry.columns.items()],
            "Location": location,
            "SerdeInfo": serde,
        },
        **({"Description": comment} if comment else {}),
    }


def _column(name: str, kind: str, comment: str, held: Mapping[str, Any]) -> dict[str, Any]:
    made = {"Name": name, "Type": kind, "Comment": comment or held.get("Comment"), "Parameters": held.get("Parameters")}
    return {field: value for field, value in made.items() if value}


def _cut(text: str, most: int) -> str:
    """A comment as Glue stores it: one line, at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def client_of(spec: CatalogSpec) -> Any:
    with refused(), needed_by("a job that registers tables in Glue", install="airflow-gddl[glue]"):
        import boto3  # noqa: PLC0415 - only this catalog needs it
        from botocore.config import Config  # noqa: PLC0415 - as above
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - as above
    wait = durations.seconds(spec.timeout)
    retries = {"mode": "standard", "total_max_attempts": 1}
    config = Config(connect_timeout=wait, read_timeout=wait, retries=retries, max_pool_connections=8)
    try:
        return boto3.Session().client("glue", region_name=spec.region, endpoint_url=spec.endpoint, config=config)
    except (BotoCoreError, ValueError) as error:
        raise CatalogError(CATALOG_UNREACHABLE, f"Glue: {error}") from error


@contextmanager
def translated() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only this catalog needs it

    try:
        yield
    except ClientError as error:
        message = f"Glue: {error}"[:400]
        code = code_of_glue(str(error.response.get("Error", {}).get("Code", "")), message)
        raise CatalogError(code, message) from error
    except BotoCoreError as error:
        raise CatalogError(CATALOG_UNREACHABLE, f"Glue: {error}"[:400]) from error
