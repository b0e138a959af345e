"""A rebuild with a row filter that is new, over updates of a part of their row.

The same rows as a table has to which the source always sent whole rows, and which had the filter from the start.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import to_table, write
from tests.spark.change_feeds import FEED, differing_versions

Row = dict[str, Any]
REBUILD = JobOptions(action=Rebuild())
COLUMNS, TYPES = ("id", "n", "v", "u"), {"id": "string", "n": "int64", "v": "string", "u": "string", "cols": "string"}
WHERE = "n <> 3"


def history_of(rng: Random, *, moves: bool) -> tuple[list[Row], list[tuple[str, Row, Row, list[str]]]]:
    """Rows of a full load; then operation, row before and after each change, and the columns that an update carries."""

    def row(key: str) -> Row:
        return {"id": key, "n": rng.randint(1, 4), "v": f"v{rng.randrange(99)}", "u": f"u{rng.randrange(99)}"}

    rows = {key: row(key) for key in "abc"}
    loaded, changes, never_used = list(rows.values()), [], iter("ghijklmnopqrstuvwxyz")
    for _ in range(30):
        key = rng.choice("abcdef")
        if key not in rows:
            rows[key] = row(key)
            changes.append(("I", {}, rows[key], []))
        elif rng.random() < 0.2:
            changes.append(("D", rows[key], rows.pop(key), []))
        else:
            carried = sorted(rng.sample(COLUMNS[1:], rng.randint(1, 2)))
            before, new = rows.pop(key), row(key)
            key = next(never_used) if moves and rng.random() < 0.2 else key
            rows[key] = {**before, **{name: new[name] for name in carried}, "id": key}
            changes.append(("U", before, rows[key], carried))
    return loaded, changes


def landed(lake: Lake, spec: TableSpec, rng: Random, *, whole: bool) -> None:
    """Lands the history, a file after the other, each of several changes, and loads it."""
    images = spec.before_image_prefix is not None
    loaded, changes = history_of(rng, moves=images)
    folder = Path(lake.layout(spec).landing)
    write(folder, "LOAD00000001.parquet", to_table(loaded, COLUMNS, TYPES))
    lake.done(spec)
    rows = []
    for at, (op, before, after, carried) in enumerate(changes):
        part = op == "U" and not whole
        sent = {name: value for name, value in after.items() if not part or name in ("id", *carried)}
        own = {f"BI_{name}": value for name, value in before.items()} if images and op == "U" else {}
        rows.append({"Op": op, "seq": at + 1, **sent, **own, "cols": ",".join(carried) if part else None})
    names = ["Op", "seq", *COLUMNS, "cols", *([f"BI_{name}" for name in COLUMNS] if images else [])]
    types = {"Op": "string", "seq": "int64", **TYPES, **{f"BI_{name}": TYPES[name] for name in COLUMNS}}
    for at in range(0, len(rows), 10):
        write(folder, f"20240101-{at + 1:09d}.parquet", to_table(rows[at : at + 10], names, types))
        lake.done(spec)


def stored(path: str, *columns: str) -> list[Row]:
    rows = pa.table(DeltaTable(path).scan()).to_pylist()
    found = [
        {**{name: row[name] for name in (*COLUMNS, *columns)}, "gone": row["_gddl"].get("deleted")} for row in rows
    ]
    return sorted(found, key=str)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "moves": {"before_image_prefix": "BI_"},
    "soft": {"delete": "soft"},
    "computed": {"derive": {"big": "n > 2"}},
}


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
@pytest.mark.parametrize("seed", range(3))
def test_a_new_filter_keeps_what_later_updates_of_a_part_need(
    seed: int, fields: dict[str, Any], tmp_path: Path
) -> None:
    filtered = with_expressions(spec_of(settle="0s", history=True, where=WHERE, **fields))
    right, lake = Lake(tmp_path / "right"), Lake(tmp_path / "rebuilt")
    landed(right, filtered, Random(seed), whole=True)  # noqa: S311 - no secret
    parts = replace(filtered, where=None, columns_to_update="cols")
    landed(lake, parts, Random(seed), whole=False)  # noqa: S311 - no secret
    mine, theirs = lake.layout(filtered), right.layout(filtered)
    DeltaTable(mine.changes).alter.set_table_properties(FEED)
    since = DeltaTable(mine.changes).version()
    lake.done(filtered, REBUILD)
    more = tuple(fields.get("derive", ()))
    bounds = ("__start_at", "__end_at")
    assert stored(mine.replica, *more) == stored(theirs.replica, *more)
    assert stored(mine.history, *more, *bounds) == stored(theirs.history, *more, *bounds)
    assert lake.done(filtered, JobOptions(action=Verify())).error is None
    changes = pa.table(DeltaTable(mine.changes).scan()).to_pylist()
    assert all(row["n"] != 3 for row in changes if row["_gddl"]["op"] != "D")
    assert differing_versions(mine.changes, since=since) == []
