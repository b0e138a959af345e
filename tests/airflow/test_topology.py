"""Tables to pipelines: what may be relied on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.spec import DEFAULT_TIERS, AirflowView, TableSpec, TierSpec
from airflow_gddl.topology.pipelines import Pipeline, arrange, group_of, pools

SCHEDULES = ("@hourly", "@daily", "*/15 * * * *", "*/5 * * * *", "continuous", None)
TIERS = {**DEFAULT_TIERS, "small": TierSpec(tables_per_job=4), "medium": TierSpec(tables_per_job=1, pool="shared")}
NAMES = st.lists(st.integers(0, 5000).map(lambda n: f"s.t{n}"), unique=True, max_size=60)


@st.composite
def tables(draw: st.DrawFn) -> list[TableSpec]:
    return [
        TableSpec(
            table=name,
            keys=("id",),
            source=draw(st.sampled_from(("shop", "erp"))),
            size=draw(st.sampled_from(("small", "medium"))),
            priority=draw(st.sampled_from(("normal", "critical"))),
            schedule=draw(st.sampled_from(SCHEDULES)),
            enabled=draw(st.integers(0, 9)) > 0,
        )
        for name in draw(NAMES)
    ]


def pipelines(specs: Iterable[TableSpec], tiers: Mapping[str, TierSpec] = DEFAULT_TIERS) -> tuple[Pipeline, ...]:
    return arrange(specs, tiers).pipelines


def only(*specs: TableSpec) -> Pipeline:
    made = pipelines(specs)
    assert len(made) == 1
    return made[0]


def table(name: str = "shop.orders", **fields: object) -> TableSpec:
    return TableSpec(table=name, keys=("id",), source="shop", **fields)  # type: ignore[arg-type] # a field's own type


@given(tables())
def test_every_enabled_table_is_in_exactly_one_pipeline(specs: list[TableSpec]) -> None:
    placed = [name for pipeline in pipelines(specs, TIERS) for name in pipeline.tables]
    assert sorted(placed) == sorted(spec.table for spec in specs if spec.enabled)


@given(tables())
def test_pipelines_respect_the_limit_and_group_equal_tables(specs: list[TableSpec]) -> None:
    by_name = {spec.table: spec for spec in specs}
    made = pipelines(specs, TIERS)
    for pipeline in made:
        members = [by_name[name] for name in pipeline.tables]
        assert 1 <= len(members) <= TIERS[pipeline.tier].tables_per_job
        assert (pipeline.view == "table") is (TIERS[pipeline.tier].tables_per_job == 1)
        assert len({(m.source, m.size, str(m.schedule)) for m in members}) == 1
    ids = [pipeline.dag_id for pipeline in made]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"[\w.-]{1,250}", dag_id, re.ASCII) for dag_id in ids)


@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(specs: list[TableSpec], random: object) -> None:
    shuffled = list(specs)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # a random.Random
    assert pipelines(shuffled, TIERS) == pipelines(specs, TIERS)


def test_presets_are_spread_over_the_hour_and_cron_lines_are_kept() -> None:
    made = pipelines([table(f"shop.t{n}", size="medium") for n in range(300)])
    minutes = [int(pipeline.timing.cron.split()[0]) for pipeline in made]
    assert {pipeline.timing.cron.split(maxsplit=1)[1] for pipeline in made} == {"* * * *"}
    assert len(set(minutes)) > 50
    assert max(minutes.count(minute) for minute in set(minutes)) < 20
    assert only(table(schedule="7 3 * * 1")).timing.cron == "7 3 * * 1"
    assert re.fullmatch(r"\d+ 0 1 \* \*", only(table(schedule="@monthly")).timing.cron)


@pytest.mark.parametrize(
    ("schedule", "kind", "name"),
    [
        ("@hourly", "cron", "gddl_pack.shop.small.1"),
        ("@once", "once", "gddl_pack.shop.small.1"),
        ("continuous", "continuous", "gddl_pack.shop.small.1"),
        (None, "never", "gddl_pack.shop.small.1"),
    ],
)
def test_each_kind_of_schedule_gives_its_timing_and_dag(schedule: str | None, kind: str, name: str) -> None:
    pipeline = only(table(schedule=schedule))
    assert (pipeline.timing.kind, pipeline.dag_id) == (kind, name)


def test_a_trigger_makes_a_table_continuous_and_tables_with_different_ones_share_a_pack() -> None:
    specs = [table(f"shop.t{i}", **how) for i, how in enumerate(({"trigger": "30s"}, {"trigger": "1s"}))]
    (pipeline,) = pipelines([*specs, table("shop.t2", schedule="continuous")])
    assert (pipeline.timing.kind, pipeline.tables) == ("continuous", ("shop.t0", "shop.t1", "shop.t2"))
    assert pipeline.dag_id == "gddl_pack.shop.small.1"


def test_asset_schedules_are_equal_in_any_order() -> None:
    specs = [table(f"shop.t{i}", schedule={"assets": names}) for i, names in enumerate([("b", "a"), ("a", "b")])]
    pipeline = only(*specs)
    assert pipeline.timing.assets == ("a", "b")
    assert pipeline.tables == ("shop.t0", "shop.t1")


def test_similar_cron_lines_make_different_packs() -> None:
    crons = ("*/5 * * * *", "5,* * * * *", "5 * * * *", "5-5 * * * *")
    made = pipelines([table(f"shop.t{i}", schedule=cron) for i, cron in enumerate(crons)])
    assert sorted(pipeline.timing.cron for pipeline in made) == sorted(crons)


@pytest.mark.parametrize("name", ["shop.a b", "shop.a$b", "shop.a@b", "shop.a#b"])
def test_names_that_are_invalid_in_dag_ids_stay_unique(name: str) -> None:
    made = pipelines([table(name, size="large"), table("shop.a-b", size="large")])
    assert len({pipeline.dag_id for pipeline in made}) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", pipeline.dag_id) for pipeline in made)


def test_a_single_table_dag_has_its_row_s_owner_and_tags() -> None:
    pipeline = only(table(size="large", owner="team-a", tags={"pii": "yes", "gold": ""}))
    assert (pipeline.owner, pipeline.dag_id) == ("team-a", "gddl.shop.orders")
    assert pipeline.tags == ("gddl", "gold", "large", "owner:team-a", "pii:yes", "priority:normal", "shop")


@pytest.mark.parametrize(
    ("row", "tier", "fields", "view"),
    [
        (None, None, {}, "group"),
        ("group", "mapped", {}, "group"),
        (None, "pack", {}, "pack"),
        ("mapped", "pack", {}, "mapped"),
        ("pack", None, {}, "pack"),
        ("table", "mapped", {}, "table"),
        (None, "table", {}, "table"),
        ("mapped", None, {"size": "medium"}, "table"),
        ("mapped", None, {"schedule": "continuous"}, "pack"),
        ("table", None, {"schedule": "continuous"}, "table"),
    ],
)
def test_the_row_s_view_comes_before_the_tier_s(
    row: AirflowView | None, tier: AirflowView | None, fields: dict[str, str], view: str
) -> None:
    tiers = {**DEFAULT_TIERS, "small": TierSpec(airflow=tier)}
    (made,) = pipelines([table(airflow=row, **fields)], tiers)
    assert made.view == view


def test_the_view_changes_no_id_of_a_pack() -> None:
    """The most detailed view of one row shows all tables of its pack."""
    some = table("shop.b", airflow="pack")
    views: tuple[AirflowView, ...] = ("pack", "mapped", "group")
    made = [only(table("shop.a", airflow=view), some) for view in views]
    assert tuple(pipeline.view for pipeline in made) == views
    assert len({pipeline.dag_id for pipeline in made}) == 1


@pytest.mark.parametrize(("count", "view"), [(50, "group"), (51, "mapped"), (500, "mapped"), (501, "pack")])
def test_the_view_follows_from_how_many_tables_there_are(count: int, view: str) -> None:
    many = pipelines([table(f"shop.t{n}") for n in range(count)])
    assert {pipeline.view for pipeline in many} == {view}


def test_a_small_pack_beside_large_ones_has_groups() -> None:
    rows = [table(f"shop.t{n}") for n in range(60)] + [replace(table(f"bank.t{n}"), source="bank") for n in range(3)]
    assert {pipeline.source: pipeline.view for pipeline in pipelines(rows)} == {
        "shop": "mapped",
        "bank": "group",
    }


def test_group_ids_are_legal_and_unique() -> None:
    names = [
        "shop.a",
        "shop.a-b",
        "shop-a.b",
        "shop.a b",
        "shop.a_b",
        "shop_a.b",
        "shop.a$",
        f"s.{'x' * 200}",
        f"s.{'x' * 201}",
    ]
    ids = [group_of(name) for name in names]
    assert (ids[0], len(set(ids))) == ("shop-a", len(names))
    assert all(re.fullmatch(r"[\w-]{1,200}", one) for one in ids)


def test_a_mapped_pack_is_no_larger_than_airflow_maps_over() -> None:
    tiers = {**DEFAULT_TIERS, "small": TierSpec(tables_per_job=5000, airflow="mapped")}
    made = pipelines([table(f"shop.t{n}") for n in range(1001)], tiers)
    assert (len(made), max(len(pipeline.tables) for pipeline in made) <= 1000) == (2, True)


def test_a_pack_has_the_owners_and_tags_of_its_rows() -> None:
    pipeline = only(
        table("shop.a", owner="team-b", tags={"pii": "yes"}),
        table("shop.b", owner="team-a", tags={"gold": ""}),
        table("shop.c"),
    )
    assert pipeline.owner == "gddl, team-a, team-b", "one of its tables has none"
    assert set(pipeline.tags) == {
        "gddl", "shop", "small", "priority:normal", "owner:team-a", "owner:team-b", "pii:yes", "gold",
    }  # fmt: skip


def test_the_owners_and_tags_of_a_large_pack_are_bounded_to_the_most_frequent() -> None:
    rows = [table(f"shop.t{n}", owner=f"team-{n:02d}", tags={f"k{n:02d}": ""}) for n in range(40)]
    pipeline = only(*rows, table("shop.z", owner="team-39", tags={"k39": ""}))
    assert (pipeline.owner, len(pipeline.tags)) == ("gddl", 4 + 10 + 20)
    assert {"owner:team-39", "k39", "owner:team-00", "k00"} <= set(pipeline.tags)
    assert "owner:team-38" not in pipeline.tags


def test_packs_are_split_by_owner_on_request() -> None:
    rows = [table("shop.a", owner="team-a"), table("shop.b", owner="Team B"), table("shop.c"), table("shop.d")]
    tiers = {**DEFAULT_TIERS, "small": TierSpec(split_by_owner=True)}
    made = {pipeline.tables: pipeline for pipeline in pipelines(rows, tiers)}
    assert made["shop.a",].dag_id == "gddl_pack.shop.small.team-a.1"
    assert made["shop.b",].dag_id.startswith("gddl_pack.shop.small.Team-B.1-")
    assert made["shop.c", "shop.d"].dag_id == "gddl_pack.shop.small.1"
    assert [made[one].owner for one in sorted(made)] == ["team-a", "Team B", "gddl"]


def test_pools_are_those_of_the_tiers_and_count_deferred_tasks() -> None:
    tiers = {**TIERS, "large": TierSpec(tables_per_job=1, pool="shared", slots=9)}
    made = pipelines([table(), table("shop.b", size="medium"), table("shop.c", size="large")], tiers)
    found = pools(made)
    assert {name: pool["slots"] for name, pool in found.items()} == {
        "gddl_small": 4,
        "gddl_small_tables": 4,
        "shared": 9,
        "gddl_continuous": 128,
    }
    assert all(pool["include_deferred"] is True for pool in found.values())
