"""The DAG files: what Airflow finds in them, and what it stores (docs/airflow.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from airflow_gddl import configuration
from airflow_gddl.dags.factory import MetadataProblems, build_dags, raise_problems
from airflow_gddl.dags.maintenance import build_upkeep_dags
from tests.airflow.bag import ROOT, kept, parse, serialised
from tests.airflow.stage import Stage

pytestmark = pytest.mark.core

GOOD = 1000
PACK = "gddl_pack.shop.small.1"
UPKEEP = ("gddl_maintenance", "gddl_rerun", "gddl_verify")
CONTEXT = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"

BAD_ROWS = {
    "wrong type": ("{table: bad.a1, keys: [id], history: 'yes'}", "bad.a1 history", "'yes'"),
    "wrong type in a list": ("{table: bad.a2, keys: [id, 2]}", "bad.a2 keys[1]", "2"),
    "unknown field": ("{table: bad.b1, keys: [id], sizes: small}", "bad.b1 sizes", "did you mean size?"),
    "unknown nested field": ("{table: bad.b2, keys: [id], schema_evolution: {new: add}}", "bad.b2", "new"),
    "duplicate": ("{table: good.t7, keys: [id]}", "good.t7", "TABLE_DUPLICATE"),
    "duplicate but for case": ("{table: GOOD.T8, keys: [id]}", "GOOD.T8", "TABLE_DUPLICATE"),
    "a cycle": ("{table: bad.c1, keys: [id], depends_on: [bad.c2]}", "bad.c1 depends_on", "FIELD_VALUE"),
    "the cycle's other half": ("{table: bad.c2, keys: [id], depends_on: [bad.c1]}", "bad.c2", "FIELD_VALUE"),
    "unknown dependency": ("{table: bad.c3, keys: [id], depends_on: [no.where]}", "bad.c3", "FIELD_VALUE"),
    "bad cron": ("{table: bad.d1, keys: [id], schedule: '61 * * * *'}", "bad.d1 schedule", "FIELD_VALUE"),
    "bad preset": ("{table: bad.d2, keys: [id], schedule: '@sometimes'}", "bad.d2 schedule", "FIELD_VALUE"),
    "secret": ("{table: bad.e1, keys: [id], tags: {password: hunter2-hunter2}}", "bad.e1", "SECRET"),
    "10 MB of text": (f"{{table: bad.f1, keys: [id], owner: [{'x' * 10_000_000}]}}", "bad.f1 owner", "'xxxx"),
    "path traversal": ("{table: ../../etc.passwd, keys: [id]}", "../../etc.passwd", "FIELD_VALUE"),
    "path traversal after the dot": ("{table: 'bad.../../x', keys: [id]}", "bad.../../x", "FIELD_VALUE"),
    "quotes": ('{table: "bad.o\'r\\"x", keys: [id]}', "bad.o", "FIELD_VALUE"),
    "code": ("{table: 'bad.{{ macros }}', keys: [id]}", "bad.{{ macros }}", "FIELD_VALUE"),
    "no keys": ("{table: bad.g1}", "bad.g1 keys", "KEYS_MISSING"),
    "a tag": ("!!python/object/apply:os.system ['touch pwned']", "", "DOCUMENT_INVALID"),
}
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8)
)


@pytest.fixture
def crowded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """1,000 good rows, 20 bad ones in every way, a bomb."""
    monkeypatch.chdir(stage.root)
    good = (f"{{table: good.t{n}, keys: [id], size: {'medium' if n % 100 == 0 else 'small'}}}" for n in range(GOOD))
    stage.rows(*good, file="tables/good.yaml")
    for n, (row, _, _) in enumerate(BAD_ROWS.values()):
        stage.rows(row, file=f"tables/z{n:02d}.yaml")
    stage.write("tables/zz_bomb.yaml", BOMB)
    return stage


def test_a03_a_thousand_tables_are_scheduled_despite_twenty_invalid_rows(crowded: Stage) -> None:
    bag = parse()
    assert [Path(path).name for path in bag.import_errors] == ["gddl_metadata_problems.py"]
    compiled = configuration.compiled_metadata(str(crowded.metadata))
    documents = [compiled.pipeline(dag_id) for dag_id in bag.dags]
    tables = sorted(spec.table for document in documents if document for spec in document.specs)
    assert tables == sorted(f"good.t{n}" for n in range(GOOD))
    assert not (crowded.root / "pwned").exists()
    for dag in bag.dags.values():
        assert serialised(dag)


def test_a03_every_bad_row_is_named_in_one_import_error(crowded: Stage) -> None:
    assert len(BAD_ROWS) + 1 == 20
    (error,) = parse().import_errors.values()
    lines = error.splitlines()
    for n, (name, (_, about, what)) in enumerate(BAD_ROWS.items()):
        found = [line for line in lines if f"tables/z{n:02d}.yaml" in line]
        assert len(found) == 1, (name, found)
        assert about in found[0], name
        assert what in found[0], name
        assert "Remedy: " in found[0], name
    assert any("tables/zz_bomb.yaml" in line and "Remedy: " in line for line in lines)
    assert "hunter2" not in error
    assert len(error) < 20_000


def test_a03_good_metadata_gives_no_import_error(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    assert parse().import_errors == {}
    raise_problems()
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop, keys: [id]}")
    with pytest.raises(MetadataProblems, match="1 problem in the metadata"):
        raise_problems()


def test_a03_a_pipeline_that_can_t_be_built_does_not_affect_others(stage: Stage) -> None:
    stage.rows(
        "{table: shop.a, keys: [id]}",
        "{table: shop.b, keys: [id], size: large, schedule: {assets: ['airflow://reserved']}}",
    )
    assert set(parse().dags) == {PACK, *UPKEEP}
    (error,) = parse().import_errors.values()
    assert "gddl.shop.b" in error
    assert "airflow" in error


@pytest.mark.wide
def test_a04_stale_metadata_is_visible_and_the_last_good_copy_serves(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    assert parse().import_errors == {}
    stage.write("gddl.yaml", "landing: ../landing\nlake: 7\n")
    bag = parse()
    assert set(bag.dags) == {PACK, *UPKEEP}
    (error,) = bag.import_errors.values()
    assert "the last good copy is used" in error
    assert "gddl.yaml:2" in error


def test_a01_three_tasks_and_no_list_of_tables(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], size: large, priority: critical}")
    dags = build_dags()
    assert sorted(dags) == ["gddl.shop.b", PACK]
    for dag in dags.values():
        edges = {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
        assert edges == {
            "landed": ["incremental_load", "initial_load"],
            "initial_load": [],
            "incremental_load": [],
        }
    assert "shop.a" not in serialised(dags[PACK])


def test_a01_a_changed_row_makes_no_new_dag_version(stage: Stage) -> None:
    """But for what a pack's DAG holds of its rows: owners and tags."""
    stage.rows("{table: shop.a, keys: [id], freshness: 5m, owner: me, tags: {a: b}}")
    before = serialised(build_dags()[PACK])
    stage.rows(
        "{table: shop.a, keys: [id, n], history: true, freshness: 5m, owner: me, tags: {a: b}}",
        "{table: shop.b, keys: [id], freshness: 10m, owner: me, depends_on: [shop.a]}",
    )
    assert serialised(build_dags()[PACK]) == before


def dumped(seed: str) -> dict[str, str]:
    """Serialised DAGs by id, from a process of its own."""
    environ = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.airflow.bag"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    dags: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return dags


@pytest.mark.wide
def test_a04_serialised_dags_are_equal_byte_by_byte(stage: Stage) -> None:
    rows = [
        f"{{table: shop.t{n}, keys: [id], size: {('small', 'medium')[n % 2]}, tags: {{x: 'y', k{n}: v, pii: no}}, "
        f"priority: {('low', 'high')[n % 3 > 0]}, freshness: 30m, schedule: '{('continuous', '@daily')[n % 5 > 0]}'}}"
        for n in range(30)
    ]
    rows += ["{table: shop.after, keys: [id], schedule: {assets: [shop.t1, 's3://b/x', shop.t2]}}"]
    stage.rows(*rows)
    first = dumped("1")
    assert len(first) == 15 + 3 + len(UPKEEP)
    stage.rows(*reversed(rows[:20]), file="tables/shop.yaml")
    stage.rows(*reversed(rows[20:]), file="tables/a_second_file.yaml")
    stage.write(
        "tables/a_second_file.yaml", "source: shop\n" + (stage.metadata / "tables/a_second_file.yaml").read_text()
    )
    second = dumped("2")
    assert second.keys() == first.keys()
    for dag_id, stored in first.items():
        assert second[dag_id] == stored


@pytest.mark.wide
@pytest.mark.parametrize("view", ["table", "group"])
def test_a04_groups_and_dags_of_tables_are_equal_byte_by_byte(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    """By one line in `defaults`, for all tables."""
    monkeypatch.delenv("GDDL_DEFAULTS__AIRFLOW")
    stage.write("gddl.yaml", f"landing: ../landing\nlake: ../lake\ndefaults: {{airflow: {view}}}\n")
    rows = [f"{{table: shop.t{n}, keys: [id]}}" for n in range(9)]
    stage.rows(*rows)
    first = dumped("1")
    packs = {dag_id for dag_id in first if dag_id.startswith("gddl_pack")}
    tables = {f"gddl.shop.t{n}" for n in range(9)}
    assert first.keys() - {f"gddl_{name}" for name in ("maintenance", "verify", "rerun")} == (
        tables if view == "table" else packs
    )
    stage.rows(*reversed(rows))
    assert dumped("2") == first


def test_no_dag_may_have_backfills(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], size: large}")
    allowed = {
        dag_id: getattr(dag, "allowed_run_types", None)
        for dag_id, dag in {**build_dags(), **build_upkeep_dags()}.items()
    }
    if None in allowed.values():
        pytest.skip("Airflow 3.2 is the first whose DAGs can refuse them; before that such runs are skipped")
    assert [dag_id for dag_id, kinds in allowed.items() if "backfill" in kinds or "scheduled" not in kinds] == []


def test_a05_a_worker_builds_only_the_dag_it_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows(*(f"{{table: shop.t{n}, keys: [id], size: large}}" for n in range(5)), "{table: shop.a, keys: [id]}")
    assert len(build_dags()) == 6
    monkeypatch.setenv(CONTEXT, "gddl.shop.t3")
    assert list(build_dags()) == ["gddl.shop.t3"]
    monkeypatch.setenv(CONTEXT, "somebody_elses")
    assert build_dags() == {}


def test_a08_pools_weights_and_runs_at_a_time(stage: Stage) -> None:
    stage.write("gddl.yaml", "landing: ../landing\nlake: ../lake\ntiers: {large: {pool: big, slots: 2}}\n")
    stage.rows(
        "{table: shop.a, keys: [id], size: large, priority: low}",
        "{table: shop.b, keys: [id], size: medium, priority: critical}",
        "{table: shop.c, keys: [id], size: large, schedule: continuous}",
    )
    dags = build_dags()
    low, critical = dags["gddl.shop.a"], dags["gddl.shop.b"]
    assert {task.pool for task in low.tasks} == {"default_pool", "big"}
    assert low.get_task("landed").pool == "default_pool"
    assert critical.get_task("initial_load").pool == "gddl_medium"
    assert [dag.get_task("initial_load").priority_weight for dag in (low, critical)] == [1, 1000]
    assert "absolute" in serialised(low)
    runs = {name: (dag.max_active_runs, dag.catchup) for name, dag in dags.items()}
    assert runs == {"gddl.shop.a": (8, False), "gddl.shop.b": (8, False), "gddl.shop.c": (1, False)}


def test_a09_schedules_on_assets_and_continuous(stage: Stage) -> None:
    stage.rows(
        "{table: shop.a, keys: [id], size: large, schedule: {assets: [shop.b, 's3://b/x']}}",
        "{table: shop.c, keys: [id], size: large, schedule: continuous}",
        "{table: shop.d, keys: [id], size: large, schedule: null}",
    )
    dags = build_dags()
    stored = json.loads(serialised(dags["gddl.shop.a"]))
    assert '"shop.b"' in json.dumps(stored)
    assert "s3://b/x" in json.dumps(stored)
    assert "Continuous" in serialised(dags["gddl.shop.c"])
    assert dags["gddl.shop.c"].task_ids == ["continuous_load"]
    assert dags["gddl.shop.d"].schedule is None


def form(stage: Stage) -> dict[str, Any]:
    stage.rows("{table: shop.a, keys: [id]}")
    dag = build_dags()[PACK]
    return {name: dag.params.get_param(name).schema for name in dag.params}


@pytest.mark.parametrize(
    ("field", "value", "good"),
    [
        ("tables", [], True),
        ("tables", ["shop.orders", "s.a$b"], True),
        ("tables", ["no dot"], False),
        ("tables", ["../x.y"], False),
        ("tables", "shop.orders", False),
        ("all", True, True),
        ("all", "yes", False),
        ("action", "verify", True),
        ("action", "rebuild", True),
        ("action", "errors_list", False),
        ("codes", ["OP_UNKNOWN"], True),
        ("codes", ["drop table"], False),
        ("from", None, True),
        ("from", "2024-01-31T00:00:00Z", True),
        ("to", 7, False),
    ],
)
def test_a02_the_form_is_validated(stage: Stage, field: str, value: object, good: bool) -> None:
    schema = form(stage)
    assert list(schema) == [
        "tables", "action", "codes", "reason", "from", "to", "all", "confirmed",
    ], "what rebuilds tables comes last"  # fmt: skip
    assert schema["action"]["values_display"].keys() == set(schema["action"]["enum"])
    assert jsonschema.Draft202012Validator(schema[field]).is_valid(value) is good


def test_the_form_of_a_dag_for_one_table_has_no_choice_of_tables(stage: Stage) -> None:
    lasting = "{table: shop.c, keys: [id], size: medium, schedule: continuous}"
    stage.rows("{table: shop.own, keys: [id], size: medium}", lasting)
    dags = build_dags()
    for dag_id in ("gddl.shop.own", "gddl.shop.c"):
        dag = dags[dag_id]
        assert list(dag.params) == ["action", "codes", "reason", "from", "to", "confirmed"], dag_id
        assert "*Tables*" not in str(dag.doc_md)
    asked = dags["gddl.shop.own"].params
    asked.update({"tables": ["shop.own"], "action": "verify"})
    assert asked.validate()["tables"] == ["shop.own"], "the page and gddl_rerun name it all the same"


def test_dags_start_paused_as_airflow_says_unless_configured(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    found = lambda: [  # noqa: E731 - as it reads
        build_dags()[PACK].is_paused_upon_creation,
        build_upkeep_dags()["gddl_verify"].is_paused_upon_creation,
    ]
    assert found() == [None, None]
    for value, paused in (("True", True), ("False", False)):
        monkeypatch.setenv("AIRFLOW__GDDL__PAUSED_UPON_CREATION", value)
        assert found() == [paused, paused]


def test_the_example_dags_load() -> None:
    bag = parse(Path(__file__).parents[2] / "airflow_gddl" / "example_dags")
    assert bag.import_errors == {}
    assert sorted(bag.dags) == ["example_gddl_consumer", "example_gddl_own_dag", "example_gddl_watcher"]


def test_access_is_given_by_team(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the code of docs/airflow.md, as Airflow stores it."""
    stage.rows(
        "{table: shop.a, keys: [id], owner: team-a}",
        "{table: shop.b, keys: [id], owner: team-b}",
        "{table: shop.c, keys: [id]}",
    )
    monkeypatch.setenv("GDDL_TIERS__SMALL__SPLIT_BY_OWNER", "true")
    text = (ROOT / "docs" / "airflow.md").read_text().partition("## Owners and access")[2]
    code = text.partition("```python\n")[2].partition("```")[0]
    folder = stage.root / "dags"
    folder.mkdir()
    (folder / "gddl.py").write_text(code)
    bag = parse(folder)
    assert bag.import_errors == {}
    access = {"DAGs": {"can_read", "can_edit"}, "DAG Runs": {"can_create"}}
    pack = "gddl_pack.shop.small"
    found = {dag_id: (kept(dag).owner, dag.access_control) for dag_id, dag in bag.dags.items()}
    assert found == {
        f"{pack}.team-a.1": ("team-a", {"team-a": access}),
        f"{pack}.team-b.1": ("team-b", {"team-b": access}),
        f"{pack}.1": ("gddl", None),
    }
