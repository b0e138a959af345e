"""`explain` on Spark answers what the other engine answers, of the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Explain
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.spark.test_maintenance import TIER, done

_OWN = {"applied_at", "occurred_at"}
"""Fields that differ from run to run."""


def landed(lake: Lake, spec: TableSpec, number: int, rows: list[tuple[str, int, str | None, int | None]]) -> None:
    """A change file of (operation, id, v, id before the change)."""
    columns: dict[str, Any] = {
        "Op": [r[0] for r in rows],
        "seq": [100 * number + at for at in range(len(rows))],
        "id": pa.array([r[1] for r in rows], pa.int32()),
        "v": pa.array([r[2] for r in rows], pa.string()),
        "BI_id": pa.array([r[3] for r in rows], pa.int32()),
    }
    write(Path(lake.layout(spec).landing), f"20240101-{number:09d}.parquet", pa.table(columns))


def comparable(result: JobResult, root: Path) -> Any:
    """Details without what differs from run to run."""
    text = json.dumps(result.details).replace(str(root), "")
    return json.loads(text, object_hook=lambda found: {n: v for n, v in found.items() if n not in _OWN})


@pytest.mark.deep
def test_explain_is_equal_on_both_engines(tmp_path: Path) -> None:
    port, spec = LocalPort("many"), spec_of(before_image_prefix="BI_", delete="soft", settle="0s")
    lakes = Lake(tmp_path / "spark", TIER), Lake(tmp_path / "rs")
    for lake in lakes:
        lake.load(spec)
        landed(lake, spec, 1, [("U", 1, "a", 1), ("?", 1, "bad", None)])
        landed(lake, spec, 4, [("U", 9, "moved", 1)])
    options = [JobOptions(action=Explain(key={"": key}, limit=limit)) for key, limit in
               (("1", 100), ("9", 100), ("1", 2))]  # fmt: skip
    done(lakes[0], spec, JobOptions(), port)
    lakes[1].done(spec)
    for lake in lakes:
        landed(lake, spec, 3, [("U", 1, "late", 1)])
    done(lakes[0], spec, JobOptions(), port)
    lakes[1].done(spec)
    answers = [comparable(done(lakes[0], spec, asked, port), tmp_path / "spark") for asked in options]
    others = [comparable(lakes[1].done(spec, asked), tmp_path / "rs") for asked in options]
    assert answers == others
    moved, come, cut = answers
    loaded = comparable(lakes[1].done(spec, JobOptions(action=Explain(key={"": "2"}))), tmp_path / "rs")
    assert [(c["op"], c["sequence"], c["state"], c["moved_to"]) for c in moved["changes"]] == [
        ("R", None, "superseded", None), ("U", 100, "superseded", None), ("U", 300, "late", None),
        ("D", 400, "winner", '{"id": "9"}'),
    ]  # fmt: skip
    assert (moved["outcome"], moved["verdict"], moved["replica"][0]["deleted"]) == ("deleted", "equal", True)
    assert len(moved["quarantine"]["records"]) == 1
    assert [(c["op"], c["moved_from"]) for c in come["changes"]] == [("U", '{"id": "1"}')]
    assert (come["outcome"], come["verdict"], come["replica"][0]["deleted"]) == ("present", "equal", False)
    assert [c["state"] for c in loaded["changes"]] == ["winner"]
    assert ([c["sequence"] for c in cut["changes"]], cut["left_out"]) == ([300, 400], 2)


def test_the_newest_of_several_tombstones_is_shown(tmp_path: Path) -> None:
    port, spec, asked = LocalPort("many"), spec_of(settle="0s"), JobOptions(action=Explain(key={"": "1"}))
    lakes = Lake(tmp_path / "spark", TIER), Lake(tmp_path / "rs")
    for number, op in enumerate("IDID", start=1):
        for lake in lakes:
            landed(lake, spec, number, [(op, 1, "v", None)])
        done(lakes[0], spec, JobOptions(), port)
        lakes[1].done(spec)
    spark, other = done(lakes[0], spec, asked, port), lakes[1].done(spec, asked)
    assert comparable(spark, tmp_path / "spark") == comparable(other, tmp_path / "rs")
    assert spark.details is not None
    assert spark.details["tombstone"]["sequence"] == 400
