"""Which batches are compared, what is counted where they can't be, and differences in the lake; without Spark."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Erase, Explain, Move
from airflow_gddl.contract.features.shadow import DifferentKey, ShadowDifference, shadow_folder, share_of
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.totals import Declined
from spark_jobs.features.shadow.feature import FEATURE, is_chosen
from spark_jobs.features.shadow.kept import KeptDifferences
from spark_jobs.plan.planned_batch import BatchPlan
from tests.harness.lake import TIER, Lake, spec_of
from tests.one_task.commands import gddl
from tests.shadow.deciding import metadata_of, release, shown

ONE = replace(TIER, tasks="one")


def plan_of(number: int) -> BatchPlan:
    moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return BatchPlan(number=number, mode="incremental", planned_at=moment.isoformat(), generation=1, files=())


@pytest.mark.parametrize(
    ("share", "least", "most"), [(0.0, 0, 0), (0.01, 50, 150), (0.5, 4700, 5300), (1.0, 10_000, 10_000)]
)
def test_share_of_batches_is_chosen(share: float, least: int, most: int) -> None:
    chosen = [is_chosen(share, "s.t", plan_of(number)) for number in range(10_000)]
    assert least <= sum(chosen) <= most
    assert chosen == [is_chosen(share, "s.t", plan_of(number)) for number in range(10_000)]


@pytest.mark.parametrize(
    ("row", "tier", "expected"),
    [
        (None, False, 0.0),
        (None, 0.25, 0.25),
        (None, True, 1.0),
        (False, True, 0.0),
        (0.5, False, 0.5),
        (True, 0.1, 1.0),
    ],
)
def test_row_decides_before_its_tier(
    row: bool | float | None, tier: bool | float, expected: float, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, tier=replace(TIER, shadow=tier))
    assert share_of(spec_of(shadow=row), lake.table_run(spec_of(shadow=row)).tier) == expected


def loaded(lake: Lake, spec: TableSpec) -> JobResult:
    lake.load(spec)
    return lake.done(spec)


def test_processes_have_no_spark_and_say_so(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    first = loaded(lake, spec)
    lake.change(spec, 1, [("U", 0, "new")])
    second = lake.done(spec)
    assert (first.features["shadow.not_compared.first_load"], first.features["shadow.not_compared"]) == (1, 1)
    assert second.features == {"shadow.not_compared": 1, "shadow.not_compared.no_spark": 1}
    (warning,) = second.warnings
    assert (warning.code, warning.sample) == ("SHADOW_NOT_COMPARED", ("no_spark",))
    assert lake.replica(spec)[0] == "new"


def test_one_task_gives_a_chosen_batch_to_the_place_with_spark(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path, tier=ONE), spec_of(shadow=True)
    loaded(lake, spec)
    lake.change(spec, 1, [("U", 0, "new")])
    declined = lake.run(spec)
    assert isinstance(declined, Declined)
    assert "shadow" in declined.reason
    assert lake.done(replace(spec, shadow=False)).features == {}  # the started batch is carried on


def test_full_loads_and_truncates_are_counted(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path, tier=ONE), spec_of(shadow=True, sweep_after="0s", sweep_limit=1.0)
    loaded(lake, spec)
    lake.load(spec, rows=2)
    assert lake.done(spec).features == {"shadow.not_compared": 1, "shadow.not_compared.full_load": 1}


def difference(**changed: Any) -> ShadowDifference:
    values: dict[str, Any] = {
        "table": "s.t", "batch_id": f"{2:012d}", "kind": "replica", "version": 3, "sorts": {"values": 1},
        "found_at": datetime.now(UTC).isoformat(),
        "keys": (DifferentKey(key='{"id":0}', ours='{"v":"a"}', spark='{"v":"b"}', columns=("v",)),),
    }  # fmt: skip
    return ShadowDifference(**{**values, **changed})


def kept(lake: Lake, spec: TableSpec, *found: ShadowDifference) -> KeptDifferences:
    made = KeptDifferences(Storage(), shadow_folder(lake.roots.lake, spec))
    for one in found:
        made.keep(one)
    return made


def test_open_difference_needs_merge_until_a_person_decides(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(shadow=0.0001)
    loaded(lake, spec)
    differences = kept(lake, spec, difference())
    lake.change(spec, 1, [("U", 0, "new")])
    declined = lake.run(spec)
    assert isinstance(declined, Declined)
    assert "MERGE" in declined.reason
    metadata_of(lake, spec)
    (line,) = shown(lake, spec)
    assert (line["batch_id"], line["sorts"], line["keys"][0]["columns"]) == (f"{2:012d}", {"values": 1}, ["v"])
    assert release(lake, spec) == [f"{2:012d}"]
    assert shown(lake, spec) == []
    assert release(lake, spec) == []
    assert [decided for _, decided in differences.all()] == [True]
    assert lake.done(spec).commit == "direct"


def test_decision_needs_a_reason(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    metadata_of(lake, spec)
    _, said = gddl(tmp_path, "shadow", "release", "--table", spec.table, "--reason", " ", status=2)
    assert "[REASON_MISSING]" in said


def test_batch_that_differs_again_waits_again(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    differences = kept(lake, spec, difference())
    metadata_of(lake, spec)
    release(lake, spec)
    differences.keep(difference(sorts={"extra": 1}))
    assert [one.sorts for one in differences.open()] == [{"extra": 1}]


def test_explain_has_both_rows(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    loaded(lake, spec)
    kept(lake, spec, difference())
    found = [lake.done(spec, JobOptions(action=Explain(key={"id": key}))).details["features"] for key in "01"]
    assert found[1] == []
    assert [line.strip() for line in found[0]] == [
        f"shadow, batch {2:012d}, replica (open), differs in v:", 'ours   {"v":"a"}', 'Spark  {"v":"b"}',
    ]  # fmt: skip


def test_erasure_removes_rows_and_keeps_that_there_was_a_difference(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    loaded(lake, spec)
    side = side_of(lake, spec)
    differences = kept(lake, spec, difference(sides={"ours": side}))
    lake.done(replace(spec, shadow=False), JobOptions(action=Erase(key={"id": "0"}, asked_by="eve")))
    (found,) = differences.open()
    assert (found.sorts, found.keys, found.sides) == ({"values": 1}, (), {})
    assert list(Storage().list(side)) == []


def test_a_table_is_moved_once_its_differences_are_decided(tmp_path: Path) -> None:
    """Also without `shadow` in the row. An erasure finds rows of decided ones under the new name."""
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    loaded(lake, spec)
    differences = kept(lake, spec, difference(sides={"ours": side_of(lake, spec)}))
    plain, new = replace(spec, shadow=False), replace(spec, table="s.new", shadow=False)
    move = JobOptions(action=Move(to=new.table))
    refused = lake.result(plain, move).error
    assert refused is not None
    assert refused.code == "MOVE_NOT_POSSIBLE"
    assert "gddl shadow release --table s.t" in refused.message
    assert lake.layout(new).replica not in {str(path) for path in tmp_path.rglob("*")}
    metadata_of(lake, spec)
    release(lake, spec)
    lake.done(plain, move)
    moved = KeptDifferences(Storage(), shadow_folder(lake.roots.lake, new))
    assert [(one.table, len(one.keys), one.sides, done) for one, done in moved.all()] == [("s.new", 1, {}, True)]
    assert list(Storage().list(differences.folder)) == []
    lake.done(new, JobOptions(action=Erase(key={"id": "0"}, asked_by="eve")))
    assert [(one.table, one.keys) for one, _ in moved.all()] == [("s.new", ())]


@pytest.mark.parametrize("broken_at", ["decided.json", "found.json"])
def test_a_move_of_differences_goes_on_where_it_broke_off(broken_at: str, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    differences = kept(lake, spec, difference(), difference(kind="history"))
    metadata_of(lake, spec)
    release(lake, spec)
    new = replace(spec, table="s.new")
    storage = _Breaking(broken_at)
    for _ in range(3):
        with suppress(KeyboardInterrupt):
            KeptDifferences(storage, differences.folder).move(
                KeptDifferences(storage, shadow_folder(lake.roots.lake, new)), new.table
            )
    moved = KeptDifferences(Storage(), shadow_folder(lake.roots.lake, new))
    assert sorted((one.kind, done) for one, done in moved.all()) == [("history", True), ("replica", True)]
    assert list(Storage().list(differences.folder)) == []


class _Breaking(Storage):
    """Dies before the first two writes of a name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.left = name, 2

    def write(self, path: str, data: bytes) -> None:
        if path.endswith(self.name) and self.left:
            self.left -= 1
            raise KeyboardInterrupt
        super().write(path, data)


def side_of(lake: Lake, spec: TableSpec) -> str:
    side = join(shadow_folder(lake.roots.lake, spec), f"{2:012d}-replica", "sides", "ours")
    Storage().write(join(side, "file"), b"rows")
    return side


@pytest.mark.parametrize(("age", "decided", "removed"), [(1, False, 0), (1, True, 1), (8, False, 1)])
def test_maintenance_removes_sides(age: int, decided: bool, removed: int, tmp_path: Path) -> None:
    """Decided ones, and those that are older than `vacuum_retention`; the document stays."""
    lake, spec = Lake(tmp_path), spec_of(shadow=True)
    loaded(lake, spec)
    moment = (datetime.now(UTC) - timedelta(days=age)).isoformat()
    differences = kept(lake, spec, difference(found_at=moment, sides={"ours": side_of(lake, spec)}))
    if decided:
        metadata_of(lake, spec)
        release(lake, spec)
    assert FEATURE.clean(lake.table_run(spec)) == removed
    assert len(list(differences.all())) == 1


@pytest.mark.parametrize(
    ("value", "good"), [(True, True), (0.01, True), (1, True), (1.5, False), (-0.1, False), ("5%", False)]
)
def test_share_is_validated(value: object, good: bool, tmp_path: Path) -> None:
    metadata_of(Lake(tmp_path), spec_of(shadow=True))
    path = tmp_path / "metadata" / "tables" / "rows.yaml"
    rows = json.loads(path.read_text())
    rows["tables"][0]["shadow"] = value
    path.write_text(json.dumps(rows))
    _, said = gddl(tmp_path, "validate", status=0 if good else 2)
    assert good or "shadow" in said, said


def test_shadow_is_off_by_default() -> None:
    assert TierSpec().shadow is False
    assert {tier.shadow for tier in DEFAULT_TIERS.values()} == {False}
