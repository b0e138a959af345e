"""The errors table: bad rows and unreadable files, kept with reason and original until they are resolved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.engines.errors_table import COLUMNS, NANOS, ROW_BITS, ROW_MASK
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.columns import Column
from spark_jobs.plan.types import parse_type
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.read import RawGroup
from spark_jobs.rules.value_text import read_json
from spark_jobs.table.table_schema import GDDL

TABLE = tuple(Column(name, parse_type(kind)) for name, kind in COLUMNS.items())
SCHEMA = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in TABLE])


def bad_rows(group: DecodedGroup, record_schema: str, plan: BatchPlan) -> list[dict[str, Any]]:
    """Rows of the errors table for the bad rows of one decoded group.

    Args:
        record_schema: DDL of the original record, so that a replay reads it back with its types.
    """
    gddl = group.rows.column(GDDL).take(pa.array(group.bad, pa.int64())).to_pylist()
    return [
        {
            "id": f"{plan.batch_id}/{g['position']}",
            "record": record,
            "record_schema": record_schema,
            "code": problem.code,
            "reason": problem.reason,
            "column": problem.column,
            "source_file": g["source_file"],
            "position": g["position"] & ROW_MASK,
            "kind": group.kind,
            "generation": g["generation"],
            "batch_id": plan.batch_id,
            "occurred_at": datetime.fromisoformat(plan.planned_at),
        }
        for g, problem, record in zip(gddl, group.problems, group.records, strict=True)
    ]


def bad_files(files: Sequence[Unreadable], plan: BatchPlan) -> list[dict[str, Any]]:
    """Rows of the errors table for files that could not be read."""
    return [
        {
            "id": f"{plan.batch_id}/{u.file.path}",
            "code": u.code,
            "reason": u.reason,
            "source_file": u.file.path,
            "kind": u.file.kind,
            "generation": u.file.generation,
            "batch_id": plan.batch_id,
            "occurred_at": datetime.fromisoformat(plan.planned_at),
        }
        for u in files
    ]


def append(tables: Tables, path: str, rows: Sequence[Mapping[str, Any]], app: str, version: int) -> None:
    """Write rows, creating the table if need be."""
    tables.create(path, TABLE, {})
    tables.commit(path, Write(app=app, version=version, added=[pa.Table.from_pylist(list(rows), schema=SCHEMA)]))


def stamp(
    tables: Tables, path: str, chosen: Callable[[pa.Table], pa.Array], now: str, transaction: tuple[str, int] = ("", 0)
) -> None:
    """Set `resolved_at` of the unresolved rows that are chosen; files without any stay as they are."""
    snapshot = tables.existing(path)
    app, version = transaction
    added, removed = [], []
    for file in snapshot.files:
        rows = tables.read_files(snapshot, [file])
        hit = pc.and_(pc.fill_null(chosen(rows), False), rows.column("resolved_at").is_null())
        if pc.any(hit).as_py():
            when = pa.scalar(datetime.fromisoformat(now), SCHEMA.field("resolved_at").type)
            at = rows.schema.get_field_index("resolved_at")
            added.append(rows.set_column(at, "resolved_at", pc.if_else(hit, when, rows.column("resolved_at"))))
            removed.append(file)
    if removed:
        tables.commit(path, Write(app=app, version=version, added=added, removed=removed))


def resolve_rows(tables: Tables, path: str, good: pa.Table, planned_at: str) -> None:
    """Mark the rows that are good now as resolved."""
    places = {
        (g["source_file"], g["position"] & ROW_MASK, "load" if g["op"] == "R" else "change")
        for g in good.column(GDDL).to_pylist()
    }

    def now_good(rows: pa.Table) -> pa.Array:
        columns = [rows.column(n).to_pylist() for n in ("source_file", "position", "kind", "record")]
        return pa.array([record is not None and (f, p, k) in places for f, p, k, record in zip(*columns, strict=True)])

    stamp(tables, path, now_good, planned_at)


def resolve_files(tables: Tables, path: str, files: Sequence[str], plan: BatchPlan, app: tuple[str, int]) -> None:
    """Mark what earlier versions of `files` left in the quarantine as resolved: the new version takes their place."""
    named = pa.array(files, pa.string())

    def older(rows: pa.Table) -> pa.Array:
        return pc.and_(pc.is_in(rows.column("source_file"), value_set=named),
                       pc.less(rows.column("batch_id"), plan.batch_id))  # fmt: skip

    stamp(tables, path, older, plan.planned_at, app)


def forget(tables: Tables, path: str, batch_id: str) -> None:
    """Remove a batch's rows."""
    snapshot = tables.existing(path)
    added, removed = [], []
    for file in snapshot.files:
        rows = tables.read_files(snapshot, [file])
        left = rows.filter(pc.not_equal(rows.column("batch_id"), batch_id))
        if left.num_rows < rows.num_rows:
            removed.append(file)
            added += [left] if left.num_rows else []
    if removed:
        tables.commit(path, Write(added=added, removed=removed))


@dataclass(frozen=True, kw_only=True)
class ReplayGroup:
    """Unresolved rows of one record schema and kind, as raw rows; columns by name and SQL type."""

    raw: RawGroup
    kind: str
    columns: tuple[tuple[str, str], ...]


def groups_to_replay(tables: Tables, path: str, planned_at: str) -> list[ReplayGroup]:
    """Rows to decode once more. Those that this very batch resolved before it died are among them."""
    if not tables.exists(path):
        return []
    now = datetime.fromisoformat(planned_at)
    rows = [r for r in tables.read(path).to_pylist() if r["record"] is not None and r["resolved_at"] in (None, now)]
    ordinals = {file: i for i, file in enumerate(sorted({r["source_file"] for r in rows}))}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["kind"], row["record_schema"]), []).append(row)
    return [_again(kind, ddl, found[kind, ddl], ordinals) for kind, ddl in sorted(found)]


def _again(kind: str, ddl: str, rows: Sequence[Mapping[str, Any]], ordinals: Mapping[str, int]) -> ReplayGroup:
    fields = record_columns(ddl)
    records = [json.loads(r["record"], parse_float=Decimal) for r in rows]
    columns = {}
    for name, text, nanos in fields:
        kept = parse_type("bigint" if nanos else text)
        columns[name] = pa.array([read_json(r.get(name), kept) for r in records], arrow_type(kept))
    lines = [r["record"] if r["code"] == "ROW_MALFORMED" else None for r in rows]
    raw = RawGroup(
        columns=columns,
        rows=len(rows),
        source=pa.array([r["source_file"] for r in rows], pa.string()),
        position=pa.array([(ordinals[r["source_file"]] << ROW_BITS) + r["position"] for r in rows], pa.int64()),
        generation=pa.array([r["generation"] for r in rows], pa.int32()),
        malformed=pa.array(lines, pa.string()) if any(lines) else None,
        nanos=tuple(name for name, _, nanos in fields if nanos),
        already_masked=True,
    )
    return ReplayGroup(raw=raw, kind=kind, columns=tuple((name, text) for name, text, _ in fields))


def record_columns(ddl: str) -> list[tuple[str, str, bool]]:
    """Name, SQL type, and whether it comes as whole nanoseconds, of each column of a record's DDL."""
    found = []
    for name, rest in split_ddl(ddl):
        kind, _, comment = rest.partition(" COMMENT '")
        nanos = comment.rstrip("'").startswith(NANOS)
        found.append((name, comment.rstrip("'").removeprefix(NANOS) if nanos else kind, nanos))
    return found


def split_ddl(ddl: str) -> list[tuple[str, str]]:
    """Name and all that follows it, at commas outside brackets, quotes and backticks."""
    parts, depth, inside, start = [], 0, "", 0
    for at, char in enumerate(ddl):
        if inside:
            inside = "" if char == inside else inside
        elif char in "`'":
            inside = char
        elif char == "," and depth == 0:
            parts.append(ddl[start:at].strip())
            start = at + 1
        else:
            depth += (char in "<(") - (char in ">)")
    parts.append(ddl[start:].strip())
    found = []
    for part in filter(None, parts):
        end = re.match(r"`((?:[^`]|``)+)` ", part)
        if end is not None:  # `record_ddl` quotes every name
            found.append((end[1].replace("``", "`"), part[end.end() :]))
    return found
