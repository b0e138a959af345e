"""A table stays in its DAG, whatever other tables do; a DAG without tables is served until its runs have ended."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec, TierSpec
from airflow_gddl.topology.pipelines import Arrangement, arrange
from airflow_gddl.topology.placement import NOWHERE

TIERS = {**DEFAULT_TIERS, "small": TierSpec(tables_per_job=4)}
DAY = 86400.0
HOURLY, DAILY = "@hourly", "@daily"


def table(number: int, **fields: object) -> TableSpec:
    return TableSpec(table=f"s.t{number:03d}", keys=("id",), source="s", **fields)  # type: ignore[arg-type] # a field's own type


def after(specs: Sequence[TableSpec], before: Arrangement | None = None, at: float = 0.0) -> Arrangement:
    return arrange(specs, TIERS, "", before.placement if before else NOWHERE, at)


def homes(made: Arrangement) -> dict[str, str]:
    return {name: pipeline.dag_id for pipeline in made.pipelines for name in pipeline.tables}


@st.composite
def edits(draw: st.DrawFn) -> list[list[TableSpec]]:
    """Metadata as it becomes over some days: rows come, go and change."""
    days = []
    for _ in range(draw(st.integers(2, 5))):
        numbers = draw(st.lists(st.integers(0, 30), unique=True, max_size=30))
        days.append(
            [
                table(
                    number,
                    schedule=draw(st.sampled_from((HOURLY, HOURLY, DAILY, "continuous"))),
                    priority=draw(st.sampled_from(("low", "critical"))),
                    size=draw(st.sampled_from(("small", "small", "medium"))),
                )
                for number in numbers
            ]
        )
    return days


def like(spec: TableSpec) -> tuple[object, ...]:
    """What decides which tables may share a DAG."""
    return spec.source, spec.size, spec.schedule


@given(edits())
def test_a_table_moves_only_if_its_own_row_changes(days: list[list[TableSpec]]) -> None:
    made = after(days[0])
    for earlier, later in itertools.pairwise(days):
        old, kinds = homes(made), {spec.table: like(spec) for spec in earlier}
        made = after(later, made)
        for spec in later:
            if kinds.get(spec.table) == like(spec):
                assert homes(made)[spec.table] == old[spec.table]
        assert sorted(homes(made)) == sorted(spec.table for spec in later)
        for pipeline in made.pipelines:
            members = [spec for spec in later if spec.table in pipeline.tables]
            assert len({like(spec) for spec in members}) == 1
            assert len(members) <= TIERS[pipeline.tier].tables_per_job
        again = after(list(reversed(later)), made)
        assert (again.pipelines, again.placement) == (made.pipelines, made.placement), "what is placed stays"


def test_priority_is_no_part_of_an_id_and_the_most_urgent_table_starts_its_pack() -> None:
    made = after([table(1), table(2)])
    urgent = after([table(1), table(2, priority="critical")], made)
    assert homes(urgent) == homes(made) == {"s.t001": "gddl_pack.s.small.1", "s.t002": "gddl_pack.s.small.1"}
    (pack,) = urgent.pipelines
    assert (pack.weight, pack.priority, urgent.retired) == (1000, "critical", ())
    assert "priority:critical" in pack.tags


def test_a_schedule_that_changes_for_one_table_moves_that_table_alone() -> None:
    made = after([table(n) for n in range(4)])
    moved = after([table(0, schedule=DAILY), *(table(n) for n in range(1, 4))], made)
    assert homes(moved) == {
        "s.t000": "gddl_pack.s.small.2",
        **{f"s.t{n:03d}": "gddl_pack.s.small.1" for n in range(1, 4)},
    }
    assert [pipeline.timing.written for pipeline in moved.pipelines] == [HOURLY, DAILY]


def test_a_schedule_that_changes_for_all_tables_of_a_pack_renames_nothing() -> None:
    made = after([table(n) for n in range(6)])
    moved = after([table(n, schedule=DAILY) for n in range(6)], made)
    assert homes(moved) == homes(made)
    assert {pipeline.timing.written for pipeline in moved.pipelines} == {DAILY}
    assert moved.retired == ()


def test_a_full_pack_is_not_split_and_free_places_are_filled_first() -> None:
    made = after([table(n) for n in range(4)])
    more = after([table(n) for n in range(5)], made)
    assert homes(more) == {**homes(made), "s.t004": "gddl_pack.s.small.2"}
    less = after([table(n) for n in (0, 1, 4)], more)
    assert homes(less) == {name: home for name, home in homes(more).items() if name not in ("s.t002", "s.t003")}
    assert homes(after([*(table(n) for n in (0, 1, 4)), table(9)], less))["s.t009"] == "gddl_pack.s.small.1"


def test_many_new_tables_fill_the_fewest_packs_evenly() -> None:
    sizes = [len(pipeline.tables) for pipeline in after([table(n) for n in range(9)]).pipelines]
    assert sizes == [3, 3, 3]


def test_a_lower_limit_moves_the_tables_beyond_it_alone() -> None:
    made = after([table(n) for n in range(4)])
    less = arrange([table(n) for n in range(4)], {**TIERS, "small": TierSpec(tables_per_job=3)}, "", made.placement)
    assert homes(less) == {**homes(made), "s.t003": "gddl_pack.s.small.2"}


def test_an_id_without_tables_is_served_until_its_runs_have_ended() -> None:
    made = after([table(1), table(2)])
    moved = after([table(1, size="medium"), table(2, size="medium")], made, at=DAY)
    assert sorted(homes(moved).values()) == ["gddl.s.t001", "gddl.s.t002"]
    (retired,) = moved.retired
    assert (retired.dag_id, retired.tables, retired.is_retired) == ("gddl_pack.s.small.1", ("s.t001", "s.t002"), True)
    same = [table(1, size="medium"), table(2, size="medium")]
    assert [one.dag_id for one in after(same, moved, at=8 * DAY).retired] == ["gddl_pack.s.small.1"]
    assert after(same, moved, at=12 * DAY).retired == ()


def test_a_restored_table_returns_to_its_pack() -> None:
    made = after([table(1), table(2)])
    away = after([table(1, size="medium"), table(2, size="medium")], made, at=DAY)
    back = after([table(1), table(2)], away, at=2 * DAY)
    assert homes(back) == homes(made)
    assert [one.dag_id for one in back.retired] == ["gddl.s.t001", "gddl.s.t002"]


def test_a_new_pack_reuses_no_active_id() -> None:
    made = after([table(1)])
    moved = after([table(1, size="medium"), table(2)], made)
    assert homes(moved)["s.t002"] == "gddl_pack.s.small.2"


def test_a_retired_pack_outlives_its_tier() -> None:
    tiers = {**TIERS, "tiny": TierSpec()}
    made = arrange([table(1, size="tiny")], tiers)
    moved = arrange([table(1)], TIERS, "", made.placement)
    (retired,) = moved.retired
    assert (retired.dag_id, retired.tier, retired.pool) == ("gddl_pack.s.tiny.1", "tiny", "gddl_small")


def test_a_deleted_or_disabled_table_leaves_no_dag_behind() -> None:
    made = after([table(1)])
    assert after([], made).retired == ()
    assert after([table(1, enabled=False)], made).retired == ()


def test_a_pack_never_changes_between_batches_and_a_continuous_job() -> None:
    made = after([table(1)])
    moved = after([table(1, schedule="continuous")], made)
    assert homes(moved) == {"s.t001": "gddl_pack.s.small.2"}
    assert [(one.dag_id, one.timing.kind) for one in moved.retired] == [("gddl_pack.s.small.1", "never")]
    back = after([table(1)], moved)
    assert [(one.dag_id, one.timing.kind) for one in back.pipelines] == [("gddl_pack.s.small.1", "cron")]
    assert [(one.dag_id, one.timing.kind) for one in back.retired] == [("gddl_pack.s.small.2", "continuous")]


def test_the_placement_is_the_same_in_every_process() -> None:
    code = (
        "import json; from airflow_gddl.contract.codec import to_json; from tests.airflow.test_placement import *\n"
        "made = after([table(n, schedule=HOURLY if n % 3 else DAILY) for n in range(40)])\n"
        "made = after([table(n, size='medium' if n % 5 == 0 else 'small') for n in range(50)], made)\n"
        "print(to_json(made.placement), [p.dag_id for p in made.pipelines])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(answers) == 1
    assert "gddl_pack.s.small.1" in answers.pop()


def test_the_prefix_is_no_part_of_the_placement() -> None:
    made = arrange([table(1)], TIERS, "dev_")
    assert [pipeline.dag_id for pipeline in made.pipelines] == ["dev_gddl_pack.s.small.1"]
    assert list(made.placement.packs) == ["gddl_pack.s.small.1"]
    assert made.pipelines[0].pool == "dev_gddl_small"
    plain = arrange([table(1)], TIERS).pipelines[0]
    assert replace(made.pipelines[0], dag_id="", prefix="", pool="") == replace(plain, dag_id="", prefix="", pool="")
