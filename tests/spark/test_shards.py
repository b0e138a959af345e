"""A table of several sources over many tasks, also after batches of the other engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Explain, HandleErrors, Rebuild, Verify
from airflow_gddl.contract.spec import JobOptions
from spark_jobs.batch.totals import TableOutcome
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.sharded import Sharded, rows_of
from tests.spark.test_maintenance import TIER, done

pytestmark = pytest.mark.deep

SHARDS = ("eu", "us")


def test_loads_changes_reloads_and_verification(tmp_path: Path) -> None:
    port, landed = LocalPort("many"), Sharded(tmp_path, SHARDS, {"sweep_after": "0s", "sweep_limit": 0.5})
    tier = replace(TIER, deletion_vectors=False)  # which the other engine does not read
    lake, quick, spec = Lake(tmp_path, tier), Lake(tmp_path), landed.spec

    def replica() -> dict[tuple[str, int], str]:
        return rows_of(pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist())

    for shard in SHARDS:
        landed.load(shard, {key: f"{shard} {key}" for key in range(8)})
    landed.change("eu", ("U", 1, "changed"), ("D", 2, ""))
    result = done(lake, spec, JobOptions(), port)
    assert (result.main.rows, replica()) == (15, landed.expected)
    landed.change("us", ("U", 1, "changed here, too"), ("?", 3, "bad"))
    landed.truth["us"][3] = "us 3"
    found = quick.run(spec)
    assert isinstance(found, TableOutcome)
    assert found.result.quarantined == 1
    assert replica() == landed.expected
    landed.load("eu", dict.fromkeys(range(3, 9), "reloaded"))
    landed.change("us", ("D", 4, ""), ("I", 20, "new"))
    result = done(lake, spec, JobOptions(), port)
    assert (result.main.deleted, result.main.rows) == (2 + 1, len(landed.expected))
    assert replica() == landed.expected
    result = done(lake, spec, JobOptions(action=HandleErrors(mode="replay")), port)
    assert (result.rows_read, result.quarantined) == (1, 1)
    result = done(lake, spec, JobOptions(action=Verify()), port)
    assert (result.details["verdict"], result.details["rows"]) == ("equal", len(landed.expected))
    result = done(lake, spec, JobOptions(action=Explain(key={"_source": "us", "id": "4"})), port)
    assert result.details["tombstone"]["op"] == "D"
    assert replica() == landed.expected


def test_each_source_has_its_own_history(tmp_path: Path) -> None:
    """A reload and a truncate of one source leave the versions of the other."""
    fields = {"sweep_after": "0s", "sweep_limit": 1.0, "history": True, "truncate": "apply"}
    port, landed = LocalPort("many"), Sharded(tmp_path, SHARDS, fields)
    lake, spec = Lake(tmp_path, TIER), landed.spec
    for shard in SHARDS:
        landed.load(shard, {1: f"{shard} 1", 2: f"{shard} 2"})
        landed.change(shard, ("U", 1, f"{shard} changed"))
    done(lake, spec, JobOptions(), port)
    landed.load("eu", {2: "reloaded"})
    landed.change("us", ("T", 0, ""), ("I", 3, "us 3"))
    done(lake, spec, JobOptions(), port)
    DeltaTable(lake.layout(spec).history).delete("id = 1")
    assert done(lake, spec, JobOptions(action=Rebuild()), port).mode == "refresh"
    rows = pa.table(DeltaTable(lake.layout(spec).history).scan()).to_pylist()
    found = {(r["_source"], r["id"], r["v"], r["__start_at"], r["__end_at"], r["__end_generation"]) for r in rows}
    assert found == {
        ("eu", 1, "eu 1", None, 100, 1), ("eu", 1, "eu changed", 100, 100, 2), ("eu", 2, "eu 2", None, 100, 2),
        ("eu", 2, "reloaded", 100, None, None),
        ("us", 1, "us 1", None, 100, 1), ("us", 1, "us changed", 100, 200, 1), ("us", 2, "us 2", None, 200, 1),
        ("us", 3, "us 3", 201, None, None),
    }  # fmt: skip
