"""A commit that sets properties of a table.

`deltalake` 1.6 has a call for it, which gives every table of reader version 3 the feature `variantType`: then other
readers refuse the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_commits import OURS


def set_properties(storage: Storage, path: str, table: DeltaTable, changed: Mapping[str, str], now: int) -> None:
    """Set properties in the table's next commit.

    Args:
        table: as it was opened last.
        now: milliseconds since 1970.

    Raises:
        RetriableError: `DELTA_CONFLICT`: somebody else has written to the table meanwhile.
    """
    done = {"timestamp": now, "operation": "SET TBLPROPERTIES", "userMetadata": OURS,
            "operationParameters": {"properties": json.dumps(dict(changed))}}  # fmt: skip
    lines = ({"commitInfo": done}, {"metaData": _metadata(table, changed)})
    commit = join(path, "_delta_log", f"{table.version() + 1:020d}.json")
    if not storage.create(commit, "".join(json.dumps(line) + "\n" for line in lines).encode()):
        raise conflict(path, f"{commit} is there already")


def conflict(path: str, reason: str) -> RetriableError:
    """Somebody else has written to the table meanwhile."""
    remedy = "another writer changed the table; run again"
    return RetriableError("DELTA_CONFLICT", reason, where=path, remedy=remedy)


def _metadata(table: DeltaTable, changed: Mapping[str, str]) -> dict[str, Any]:
    """Delta's action `metaData`, as the protocol describes it."""
    known = table.metadata()
    optional = {"name": known.name, "description": known.description, "createdTime": known.created_time}
    return {
        "id": str(known.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": list(known.partition_columns),
        "configuration": {**known.configuration, **changed},
        **{name: value for name, value in optional.items() if value is not None},
    }
