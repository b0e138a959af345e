"""Rows of the errors table: resolved, unresolved, and replayed ones. Independent of other rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import GDDL, Column
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.arrays import arrow_type, ascending, flat, with_values
from spark_jobs.rules.decode import DecodedGroup, ReplayGroup, Stamp, replayed
from spark_jobs.rules.errors_table import COLUMNS
from spark_jobs.rules.positions import ROW_MASK
from spark_jobs.rules.texts import utc_text

TABLE = tuple(Column(name, parse_type(kind)) for name, kind in COLUMNS.items())
SCHEMA = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in TABLE])


def of_rows(group: DecodedGroup, stamp: Stamp) -> pa.Table:
    """A row for each bad row of a decoded group, in the order of `DecodedGroup.bad`."""
    gddl = flat(group.rows.column(GDDL)).take(pa.array(group.bad, pa.int64()))
    position, count = gddl.field("position"), len(group.bad)
    occurred = pa.scalar(datetime.fromisoformat(stamp.applied_at), SCHEMA.field("occurred_at").type)
    values = {
        "id": pc.binary_join_element_wise(stamp.batch_id, position.cast(pa.string()), "/"),
        "record": pa.array([r.json for r in group.records], pa.string()),
        "record_schema": pa.array([r.schema for r in group.records], pa.string()),
        "code": pa.array([p.code for p in group.problems], pa.string()),
        "reason": pa.array([p.reason for p in group.problems], pa.string()),
        "column": pa.array([p.column for p in group.problems], pa.string()),
        "source_file": gddl.field("source_file"),
        "position": pc.bit_wise_and(position, ROW_MASK),
        "kind": pa.repeat(group.kind, count),
        "generation": gddl.field("generation"),
        "batch_id": pa.repeat(stamp.batch_id, count),
        "occurred_at": pa.repeat(occurred, count),
    }
    return pa.Table.from_arrays([values.get(f.name, pa.nulls(count, f.type)) for f in SCHEMA], schema=SCHEMA)


def of_files(files: Sequence[Unreadable], stamp: Stamp) -> pa.Table:
    """A row for each file that could not be read."""
    rows = [
        {
            "id": f"{stamp.batch_id}/{u.file.path}", "code": u.code, "reason": u.reason, "source_file": u.file.path,
            "kind": u.file.kind, "generation": u.file.generation, "batch_id": stamp.batch_id,
            "occurred_at": datetime.fromisoformat(stamp.applied_at),
        }
        for u in files
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)


Chosen = Callable[[pa.Table], pa.Array]
"""Whether each row is meant; None: it isn't."""


def resolved(rows: pa.Table, chosen: Chosen, now: str) -> pa.Table | None:
    """Rows with `resolved_at` set where they are chosen and unresolved; None when none is."""
    hit = pc.and_(pc.fill_null(chosen(rows), False), rows.column("resolved_at").is_null())
    if not pc.any(hit).as_py():
        return None
    when = pa.scalar(datetime.fromisoformat(now), SCHEMA.field("resolved_at").type)
    return with_values(rows, {"resolved_at": pc.if_else(hit, when, rows.column("resolved_at"))})


def reopened(rows: pa.Table, when: str) -> pa.Table | None:
    """Rows that were resolved at this time, that of a batch's plan, as unresolved again; None when none was."""
    column = rows.column("resolved_at")
    hit = pc.fill_null(pc.equal(column, pa.scalar(datetime.fromisoformat(when), column.type)), False)
    if not pc.any(hit).as_py():
        return None
    return with_values(rows, {"resolved_at": pc.if_else(hit, pa.scalar(None, column.type), column)})


def good_again(good: pa.Table) -> Chosen:
    """Rows whose records are among these changes now."""
    places = {
        (g["source_file"], g["position"] & ROW_MASK, "load" if g["op"] == "R" else "change")
        for g in good.column(GDDL).to_pylist()
    }

    def now_good(rows: pa.Table) -> pa.Array:
        columns = [rows.column(n).to_pylist() for n in ("source_file", "position", "kind", "record")]
        return pa.array([record is not None and (f, p, k) in places for f, p, k, record in zip(*columns, strict=True)])

    return now_good


def of_codes_and_files(codes: Collection[str], files: Collection[str]) -> Chosen:
    """Rows of these codes and files; empty: of all."""

    def named(rows: pa.Table) -> pa.Array:
        hit = pa.repeat(True, rows.num_rows)
        for column, values in (("code", codes), ("source_file", files)):
            if values:
                hit = pc.and_(hit, pc.is_in(rows.column(column), value_set=pa.array(values, pa.string())))
        return hit

    return named


def of_earlier_batches(files: Sequence[str], batch_id: str) -> Chosen:
    """What files left when earlier batches read them: what this batch reads takes its place."""
    named = pa.array(files, pa.string())

    def older(rows: pa.Table) -> pa.Array:
        return pc.and_(pc.is_in(rows.column("source_file"), value_set=named),
                       pc.less(rows.column("batch_id"), batch_id))  # fmt: skip

    return older


def to_replay(rows: pa.Table, planned_at: str, codes: Collection[str]) -> list[ReplayGroup]:
    """Rows of these codes (empty: all) to replay.

    Includes rows that an interrupted attempt of this batch resolved.
    """
    now = datetime.fromisoformat(planned_at)
    chosen = (row for row in rows.to_pylist() if not codes or row["code"] in codes)
    replayable = [row for row in chosen if row["record"] is not None and row["resolved_at"] in (None, now)]
    return replayed(replayable)


@dataclass(frozen=True)
class Unresolved:
    """What is in quarantine, or what is there of some codes.

    Attributes:
        count: number of rows.
        codes: for each code, the most frequent first: `code`, `rows`, `files`, and when its `first` and `last` row were
            quarantined, as ISO 8601 text.
        rows: the oldest rows; times as ISO 8601 text.
    """

    count: int
    codes: list[Mapping[str, Any]]
    rows: list[Mapping[str, Any]]


def unresolved(rows: pa.Table, codes: Collection[str] = ()) -> pa.Table:
    """Rows that are in quarantine, of these codes (empty: all)."""
    remaining = rows.filter(rows.column("resolved_at").is_null())
    return (
        remaining.filter(pc.is_in(remaining.column("code"), value_set=pa.array(codes, pa.string())))
        if codes
        else remaining
    )


def by_file(rows: pa.Table) -> pa.Table:
    """Rows in quarantine counted by code and file; see `by_code`."""
    grouped = rows.group_by(["code", "source_file"])
    counted = grouped.aggregate([([], "count_all"), ("occurred_at", "min"), ("occurred_at", "max")])
    return counted.rename_columns({"count_all": "rows", "occurred_at_min": "first", "occurred_at_max": "last"})


def by_code(counted: Iterable[pa.Table]) -> list[Mapping[str, Any]]:
    """See `Unresolved.codes`.

    Args:
        counted: results of `by_file`, of any parts of the rows.
    """
    codes: dict[str, dict[str, Any]] = {}
    files: dict[str, set[str]] = {}
    for one in (row for part in counted for row in part.to_pylist()):
        first, last = utc_text(one["first"]), utc_text(one["last"])
        code = codes.setdefault(one["code"], {"code": one["code"], "rows": 0, "files": 0, "first": first, "last": last})
        files.setdefault(one["code"], set()).add(one["source_file"])
        code["rows"] += one["rows"]
        code["first"], code["last"] = min(code["first"], first), max(code["last"], last)
    for name, code in codes.items():
        code["files"] = len(files[name])
    return sorted(codes.values(), key=lambda code: (-code["rows"], code["code"]))


def oldest(rows: pa.Table, limit: int) -> pa.Table:
    """At most `limit` of the rows, the oldest first."""
    return rows.take(ascending(rows, ["batch_id", "source_file", "position"])).slice(0, limit)


def shown(rows: pa.Table) -> list[Mapping[str, Any]]:
    """Rows in quarantine as `ErrorsTable.unresolved` returns them."""
    entries = rows.drop_columns(["record_schema", "resolved_at"]).to_pylist()
    return [{**row, "occurred_at": utc_text(row["occurred_at"])} for row in entries]
