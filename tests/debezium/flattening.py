"""Files of change events, as a sink writes them behind the transform `ExtractNewRecordState`."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_gddl.contract.layout import Layout
from tests.debezium.rendering import DebeziumGround
from tests.scenarios.model import RunStep, Scenario

FIELDS = ("connector", "ts_ms", "snapshot", "table", "lsn", "sequence")


def flat(event: Mapping[str, Any], fields: Sequence[str] = FIELDS) -> dict[str, Any]:
    """As the transform does it with `delete.tombstone.handling.mode=rewrite` and these fields of `source`."""
    deleted = event["op"] == "d"
    row = event["before" if deleted else "after"] or {}
    added = {f"__source_{name}": event["source"].get(name) for name in fields}
    return {**row, "__deleted": str(deleted).lower(), "__op": event["op"], **added}


def flattened(content: bytes, fields: Sequence[str] = FIELDS) -> bytes:
    """A file of events, flat; a line that is none is unchanged."""
    if content[:4] == b"PAR1":
        return _parquet(content)
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(flattened(gzip.decompress(content), fields), mtime=0)
    return b"".join(_line(line, fields) for line in content.splitlines(keepends=True))


def _line(line: bytes, fields: Sequence[str]) -> bytes:
    try:
        found = json.loads(line)
    except ValueError:
        return line
    if isinstance(found, dict) and "payload" in found:
        return _written({"schema": _schema(found["schema"]), "payload": found["payload"] and flat(found["payload"])})
    return _written(flat(found, fields)) if isinstance(found, dict) and "op" in found else line


def _written(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _schema(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    row = next(part for part in schema["fields"] if part["field"] in ("after", "before"))
    added = [{"type": "string", "optional": True, "field": name} for name in ("__deleted", "__op")]
    return {"type": "struct", "fields": [*row["fields"], *added]}


def _parquet(content: bytes) -> bytes:
    table = pq.read_table(io.BytesIO(content))
    ops = table.column("op").to_pylist()
    deleted = pa.array([op == "d" for op in ops], pa.bool_())
    places = pa.array([at + (table.num_rows if op == "d" else 0) for at, op in enumerate(ops)], pa.int64())
    after, before = (table.column(side).combine_chunks() for side in ("after", "before"))
    columns = {
        part.name: pa.concat_arrays([pc.struct_field(side, part.name) for side in (after, before)]).take(places)
        for part in after.type
    }
    source = table.column("source").to_pylist()
    added = {f"__source_{name}": [each.get(name) for each in source] for name in FIELDS}
    sink = io.BytesIO()
    marks = {"__deleted": pc.if_else(deleted, "true", "false"), "__op": ops, **added}
    pq.write_table(pa.table({**columns, **marks}), sink)
    return sink.getvalue()


@dataclass(frozen=True)
class FlatGround(DebeziumGround):
    """Lands rendered scenarios as flat events."""

    def land(self, scenario: Scenario, run: RunStep) -> None:
        super().land(scenario, run)
        folder = Path(Layout.of(self.roots, scenario.spec()).landing)
        for file in run.files:
            path = folder / file.name
            if not file.cut and file.raw is None:
                path.write_bytes(flattened(path.read_bytes()))
