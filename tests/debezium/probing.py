"""What the Debezium dialect decodes from the content of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.protocol import Probed, dialect_of


def probe(folder: Path, content: bytes | str, *, before_image_prefix: str | None = None, **options: Any) -> Probed:
    """
    Raises:
        QuarantinableError: as `Dialect.probe`.
    """
    path = folder / "t+0+0000000000.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    file = PlannedFile(path=str(path), kind="change", format="json", size=path.stat().st_size, etag="", modified="",
                       fingerprint="", generation=1)  # fmt: skip
    spec = TableSpec(table="shop.t", keys=("id",), dialect="debezium", options=options,
                     before_image_prefix=before_image_prefix)  # fmt: skip
    return dialect_of(spec).probe(Storage(), file)


def rows_of(found: Probed) -> list[dict[str, Any]]:
    """Rows without the event time."""
    assert found.table is not None
    return [{k: v for k, v in row.items() if k != "_dbz_ts"} for row in found.table.to_pylist()]


def event(op: str, row: Mapping[str, Any] | None, lsn: int = 1, **more: Any) -> dict[str, Any]:
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {**sides, "source": {"connector": "postgresql", "lsn": lsn, "ts_ms": 1}, "op": op, **more}


def text(*records: Any) -> str:
    """JSON lines."""
    return "".join(f"{json.dumps(record)}\n" for record in records)


def wrapped(fields: Mapping[str, Mapping[str, Any]], *events: Mapping[str, Any]) -> str:
    """JSON lines in Connect's wrapper, tersely as the converter writes them."""
    row = {"type": "struct", "field": "after", "fields": [{"field": name, **kind} for name, kind in fields.items()]}
    schema = {"type": "struct", "fields": [row]}
    found = [json.dumps({"schema": schema, "payload": each}, separators=(",", ":")) for each in events]
    return "".join(f"{line}\n" for line in found)
