"""Faults in our commits: each sort stops its batch before the commit, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Explain, Verify
from airflow_gddl.contract.features.shadow import ShadowDifference, shadow_folder
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.features.shadow.kept import KeptDifferences
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.shadow.deciding import metadata_of, release, shown
from tests.shadow.faults import ACTIONS, ROWS, plant
from tests.shadow.random_batches import read_by_kernel

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]
FAULTS = {**ROWS, **ACTIONS}
SOUND = "sound"
ROWS_AFTER = {0: "wanted", 2: "load 2", 3: "load 3", 9: "one more"}
"""After the batch that has faults; every row of the load has a value."""


@dataclass
class Story:
    """Attributes:
    stopped, merged, released: results by table: of the batch with faults, of the next run, and of one after decisions.
    before: version and rows of each replica after the stopped batch.
    """

    lake: Lake
    specs: dict[str, TableSpec]
    stopped: dict[str, JobResult] = field(default_factory=dict)
    merged: dict[str, JobResult] = field(default_factory=dict)
    released: dict[str, JobResult] = field(default_factory=dict)
    before: dict[str, dict[int, str]] = field(default_factory=dict)
    after: dict[str, dict[int, str]] = field(default_factory=dict)
    differences: dict[str, list[ShadowDifference]] = field(default_factory=dict)
    explained: dict[str, JobResult] = field(default_factory=dict)
    verified: dict[str, JobResult] = field(default_factory=dict)
    shown: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    decided: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="module", params=["usual reader", "kernel"])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The same by the reader of users' jobs and by that of the random lane."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "kernel":
            read_by_kernel(patch)
        return played(Lake(tmp_path_factory.mktemp("faults")))


def played(lake: Lake) -> Story:
    """All faults side by side, each in a table of its name, from the load to after the decisions."""
    port = LocalPort("many")
    names = (SOUND, *FAULTS)
    made = Story(lake, {name: spec_of(name, history=True, shadow=True, mask={"m": "hash"}) for name in names})

    def run(run_id: str, options: JobOptions | None = None) -> dict[str, JobResult]:
        done = lake.results(port, lake.job(list(made.specs.values()), options, run_id))
        return {name: done[spec.table] for name, spec in made.specs.items()}

    for spec in made.specs.values():
        land_load(lake, spec)
    run("load")
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for spec in made.specs.values():
            land_changes(lake, spec, 1, [("U", 0, "wanted"), ("I", 9, "one more"), ("D", 1, "")])
        made.stopped = run("faulty")
        made.before = {name: lake.replica(spec) for name, spec in made.specs.items()}
        made.differences = {name: kept_of(lake, spec).open() for name, spec in made.specs.items()}
        made.explained = run("explain", JobOptions(action=Explain(key={"id": "0"})))
        made.merged = run("again")
        made.after = {name: lake.replica(spec) for name, spec in made.specs.items()}
    metadata_of(lake, *made.specs.values())
    made.shown = {name: shown(lake, spec) for name, spec in made.specs.items()}
    made.decided = {name: release(lake, spec) for name, spec in made.specs.items()}
    for spec in made.specs.values():
        land_changes(lake, spec, 2, [("U", 2, "newer"), ("D", 9, "")])
    made.released = run("released")
    made.verified = run("verify", JobOptions(action=Verify()))
    return made


def land_load(lake: Lake, spec: TableSpec) -> None:
    ids = range(4)
    columns = {"id": pa.array(ids, pa.int32()), "v": [f"load {i}" for i in ids], "m": [f"secret {i}" for i in ids]}
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table(columns))


def land_changes(lake: Lake, spec: TableSpec, number: int, rows: Sequence[tuple[str, int, str]]) -> None:
    columns = {
        "Op": [op for op, *_ in rows], "seq": [100 * number + at for at in range(len(rows))],
        "id": pa.array([key for _, key, _ in rows], pa.int32()), "v": [value for *_, value in rows],
        "m": ["secret"] * len(rows),
    }  # fmt: skip
    write(lake.landing(spec), f"20240101-{number:09d}.parquet", pa.table(columns))


def kept_of(lake: Lake, spec: TableSpec) -> KeptDifferences:
    return KeptDifferences(Storage(), shadow_folder(lake.roots.lake, spec))


def test_sound_batch_is_compared_and_committed(story: Story) -> None:
    for result in (story.stopped[SOUND], story.released[SOUND]):
        assert result.status == "succeeded"
        assert (result.features["shadow.compared"], result.features["shadow.differences"]) == (1, 0)
        assert result.features["shadow.seconds"] > 0
        assert result.commit == "direct"
    assert story.before[SOUND] == ROWS_AFTER


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_stops_its_batch_before_the_commit(fault: str, story: Story) -> None:
    result, (found,) = story.stopped[fault], story.differences[fault]
    assert result.error is not None
    assert (result.status, result.error.code, result.error.fatal) == ("failed", "SHADOW_DIFFERENCE", False)
    assert result.features["shadow.differences"] == 1
    _, _, kind, sort = FAULTS[fault]
    assert found.kind == kind
    assert sort in found.sorts, found
    if kind == "replica":
        assert story.before[fault] == {0: "load 0", 1: "load 1", 2: "load 2", 3: "load 3"}


@pytest.mark.parametrize("fault", FAULTS)
def test_next_run_ends_the_batch_by_merge(fault: str, story: Story) -> None:
    result = story.merged[fault]
    assert (result.status, result.commit) == ("succeeded", "merge"), result.error
    assert [w.code for w in result.warnings if w.code == "SHADOW_HELD"] == ["SHADOW_HELD"]
    assert result.features["shadow.not_compared.held"] == 1
    assert story.after[fault] == ROWS_AFTER


@pytest.mark.parametrize("fault", FAULTS)
def test_after_the_decision_our_commits_go_on(fault: str, story: Story) -> None:
    result = story.released[fault]
    assert (result.status, result.commit) == ("succeeded", "direct"), result.error
    assert (result.features["shadow.compared"], result.features["shadow.differences"]) == (1, 0)
    assert story.lake.replica(story.specs[fault]) == {0: "wanted", 2: "newer", 3: "load 3"}
    assert story.verified[fault].details["verdict"] == "equal"
    history = story.lake.rows(story.lake.layout(story.specs[fault]).history)
    versions = sorted(
        (row["id"], row["v"], row["__end_at"] is None and row["__end_generation"] is None) for row in history
    )
    assert versions == [(0, "load 0", False), (0, "wanted", True), (1, "load 1", False), (2, "load 2", False),
                        (2, "newer", True), (3, "load 3", True), (9, "one more", False)]  # fmt: skip


def test_both_rows_of_a_key_are_shown(story: Story) -> None:
    (found,) = story.differences["value_changed"]
    (one,) = found.keys
    assert '"m":"(masked)"' in str(one.ours)
    assert "secret" not in str(found)
    assert (one.key, one.columns) == ('{"id":0}', ("v",))
    assert '"v":"other"' in str(one.ours)
    assert '"v":"wanted"' in str(one.spark)
    lines = "\n".join(story.explained["value_changed"].details["features"])
    assert "differs in v" in lines
    assert one.ours is not None
    assert one.ours in lines
    assert story.explained[SOUND].details["features"] == []


def test_both_sides_can_be_read(story: Story) -> None:
    (found,) = story.differences["value_changed"]
    values = {}
    for side, folder in found.sides.items():
        values[side] = {row["v"] for row in LocalPort("many").read_by_spark(folder) if row["id"] == 0}
    assert values == {"ours": {"other"}, "spark": {"wanted"}}
