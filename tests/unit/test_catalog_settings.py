"""`gddl.yaml` and the environment; whatever is wrong there stops everything, with every fault named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec, TierSpec, TierTasks
from airflow_gddl.metadata.loading import load
from airflow_gddl.metadata.settings import SettingsError
from tests.unit.metadata_folder import SETTINGS, loaded, row_file, write


def test_the_least_a_folder_needs(tmp_path: Path) -> None:
    catalog = loaded(tmp_path, {})
    assert (catalog.roots.landing, catalog.roots.lake) == (f"{tmp_path}/landing", f"{tmp_path}/lake")
    assert (catalog.runner, catalog.runners, catalog.tables, catalog.problems) == ("local", {}, (), ())
    assert catalog.tiers == DEFAULT_TIERS


@pytest.mark.parametrize("tasks", get_args(TierTasks))
def test_commits_by_merge_with_any_tasks(tmp_path: Path, tasks: TierTasks) -> None:
    """Spark's `MERGE` is run by the driver: such a table is in no task of its own."""
    tier = loaded(tmp_path, {"gddl.yaml": f"{SETTINGS}tiers:\n  small: {{commit: merge, tasks: {tasks}}}\n"}).tiers[
        "small"
    ]
    assert (tier.tasks, tier.commit, tier.in_one_task) == (tasks, "merge", False)


def test_one_line_lets_merge_commit_all_tables(tmp_path: Path) -> None:
    """From the weakest layer to the strongest: settings, a source, a file, a row; a tier is weaker than all."""
    sources = "sources:\n  crm: {defaults: {commit: direct}}\n"
    tables = {
        "a.yaml": "tables: [{table: s.a, keys: [id]}, {table: s.b, keys: [id], commit: direct, size: large}]",
        "b.yaml": "defaults: {source: crm}\ntables: [{table: s.c, keys: [id]}]",
        "c.yaml": "defaults: {source: crm, commit: merge}\ntables: [{table: s.d, keys: [id]}]",
    }
    files = {"gddl.yaml": f"{SETTINGS}defaults: {{commit: merge}}\n{sources}"}
    found = loaded(tmp_path, files | {f"tables/{name}": text + "\n" for name, text in tables.items()})
    assert not found.problems
    tiers = {spec.name: found.tiers[spec.size].for_row(spec) for spec in found.tables}
    assert {name: tier.commit for name, tier in tiers.items()} == {
        "a": "merge", "b": "direct", "c": "direct", "d": "merge",
    }  # fmt: skip
    assert {name: tier.in_one_task for name, tier in tiers.items()} == {"a": False, "b": False, "c": True, "d": False}


def test_a_row_without_commit_has_that_of_its_tier() -> None:
    spec, tier = TableSpec(table="s.a", keys=("id",)), TierSpec(commit="merge")
    assert tier.for_row(spec) is tier
    assert tier.for_row(replace(spec, commit="direct")) == TierSpec()


def test_a_variable_overrides_one_of_two_tiers_that_share_an_alias(tmp_path: Path) -> None:
    settings = SETTINGS + "tiers:\n  small: &cores {cores: 4}\n  huge: *cores\n"
    tiers = loaded(tmp_path, {"gddl.yaml": settings}, {"GDDL_TIERS__SMALL__CORES": "8"}).tiers
    assert (tiers["small"].cores, tiers["huge"].cores) == (8, 4)


def test_tiers_are_changed_and_added(tmp_path: Path) -> None:
    settings = SETTINGS + "tiers:\n  small: {tables_per_job: 50}\n  huge: {cores: 64}\n  x:\n"
    file = row_file("{table: s.a, keys: [id], size: huge}")
    catalog = loaded(tmp_path, {"gddl.yaml": settings, "tables/a.yaml": file})
    assert catalog.tiers["small"] == TierSpec(tables_per_job=50)
    assert catalog.tiers["medium"] == DEFAULT_TIERS["medium"]
    assert catalog.tiers["huge"] == TierSpec(cores=64)
    assert catalog.tiers["x"] == TierSpec()
    assert [spec.size for spec in catalog.tables] == ["huge"]


def test_runners_are_kept_as_written(tmp_path: Path) -> None:
    settings = SETTINGS + "runner: local\nrunners:\n  local:\n  elsewhere: {host: h, n: 2, tags: [a]}\n"
    catalog = loaded(tmp_path, {"gddl.yaml": settings})
    assert (catalog.runner, catalog.runners) == (
        "local",
        {"local": {}, "elsewhere": {"host": "h", "n": 2, "tags": ["a"]}},
    )


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("/data/landing/", "/data/landing"),
        ("//data/../x", "/x"),
        ("../landing", "PARENT/landing"),
        ("./a/b c", "HERE/a/b c"),
        ("file:///data/a%20b/", "/data/a b"),
        ("file://localhost/data", "/data"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/pre/fix/", "s3://bucket/pre/fix"),
    ],
)
def test_roots_become_absolute(tmp_path: Path, root: str, expected: str) -> None:
    catalog = loaded(tmp_path, {"gddl.yaml": f"landing: {root}\nlake: s3://lake\n"})
    assert catalog.roots.landing == expected.replace("PARENT", str(tmp_path.parent)).replace("HERE", str(tmp_path))


@pytest.mark.parametrize(
    "root",
    ["s3a://b/x", "gs://b", "https://h/x", "C:\\data", "~/x", "file://host/x", "file:x", "s3://", "s3://B_/x", "s3://b/../x",
     "s3://bucket/?x=1", "''", "' /x'", "5", "[a]"],
)  # fmt: skip
def test_other_roots_are_refused(tmp_path: Path, root: str) -> None:
    folder = write(tmp_path, {"gddl.yaml": f"lake: lake\nlanding: {root}\n"})
    with pytest.raises(SettingsError) as error:
        load(folder, {})
    (problem,) = error.value.problems
    assert (problem.code in {"FIELD_VALUE", "FIELD_TYPE"}, problem.field, problem.place) == (
        True,
        "landing",
        "gddl.yaml:2",
    )
    assert "GDDL_LANDING" in problem.remedy


def test_the_environment_overrides_every_section(tmp_path: Path) -> None:
    settings = (
        SETTINGS + "runner: moon\n"
        "defaults: {owner: a}\ntiers:\n  extra-Large: {cores: 8}\nrunners:\n  elsewhere: {host: dev}\n"
    )
    environ = {
        "GDDL_LANDING": "s3://prod/landing",
        "GDDL_LAKE": "../lake",
        "GDDL_RUNNER": "local",
        "GDDL_TIERS__SMALL__TABLES_PER_JOB": "50",
        "GDDL_TIERS__EXTRA_LARGE__MEMORY": "16g",
        "GDDL_TIERS__NEW__DELETION_VECTORS": "true",
        "GDDL_DEFAULTS__SCHEDULE": "@daily",
        "GDDL_DEFAULTS__FRESHNESS": '"2h"',
        "GDDL_DEFAULTS__OWNER": "",
        "GDDL_DEFAULTS__TAGS__TEAM": "core",
        "GDDL_DEFAULTS__CLUSTER_BY": "[a, b]",
        "GDDL_DEFAULTS__SEQUENCE_BY": "[]",
        "GDDL_RUNNERS__ELSEWHERE__HOST": "prod",
        "GDDL_RUNNERS__ELSEWHERE__CLUSTER__WORKERS": "3",
        "GDDL_METADATA": "elsewhere",
        "OTHER": "x",
    }
    catalog = loaded(tmp_path, {"gddl.yaml": settings, "tables/a.yaml": row_file("{table: s.a, keys: [id]}")}, environ)
    assert (catalog.roots.landing, catalog.roots.lake) == ("s3://prod/landing", f"{tmp_path.parent}/lake")
    assert catalog.tiers["small"].tables_per_job == 50
    assert (catalog.tiers["extra-Large"].cores, catalog.tiers["extra-Large"].memory) == (8, "16g")
    assert catalog.tiers["new"].deletion_vectors is True
    assert (catalog.runner, catalog.runners) == (
        "local",
        {"elsewhere": {"host": "prod", "cluster": {"workers": 3}}},
    )
    (spec,) = catalog.tables
    assert (spec.schedule, spec.freshness, spec.owner) == ("@daily", "2h", "a")
    assert (spec.tags, spec.cluster_by, spec.sequence_by) == ({"team": "core"}, ("a", "b"), ())


def test_without_a_file_the_environment_may_name_the_roots(tmp_path: Path) -> None:
    catalog = load(tmp_path, {"GDDL_LANDING": "/in", "GDDL_LAKE": "/out"})
    assert (catalog.roots.landing, catalog.roots.lake) == ("/in", "/out")


def test_a_folder_without_settings_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match=r"gddl.yaml: there is no such file") as error:
        load(tmp_path / "nowhere", {})
    assert error.value.code == "SETTINGS_INVALID"
    assert "GDDL_LAKE" in error.value.remedy


@pytest.mark.parametrize(
    ("extra", "place", "field", "message"),
    [
        ("landig: x", "gddl.yaml:3", "landig", "no such field"),
        ("runner: 5", "gddl.yaml:3", "runner", "must be a runner's name"),
        ("runner:", "gddl.yaml:3", "runner", "must be a runner's name"),
        ("runner: moon", "gddl.yaml:3", "runner", "no such runner"),
        ("lake: other", "gddl.yaml:3", "lake", "written twice"),
        ("tiers: [a]", "gddl.yaml:3", "tiers", "must be a mapping"),
        ("tiers:\n  small: 5", "gddl.yaml:4", "tiers.small", "must be a mapping"),
        ("tiers:\n  small: {table_per_job: 5}", "gddl.yaml:4", "tiers.small.table_per_job", "no such field"),
        ("tiers:\n  small:\n    cores: 0", "gddl.yaml:5", "tiers.small.cores", "1 or more"),
        ("tiers:\n  small: {cores: '4'}", "gddl.yaml:4", "tiers.small.cores", "a whole number"),
        ("tiers:\n  small: {memory: lots}", "gddl.yaml:4", "tiers.small.memory", "amount of memory"),
        ("tiers:\n  small: {tasks: two}", "gddl.yaml:4", "tiers.small.tasks", "must be 'one'"),
        ("tiers:\n  small: {queue: ' '}", "gddl.yaml:4", "tiers.small.queue", "is no name"),
        ("tiers:\n  s: {executor_config: {pod_override: {}}}", "gddl.yaml:4", "tiers.s.executor_config", "a Python"),
        ("dag_prefix: a b", "gddl.yaml:3", "dag_prefix", "can't begin a DAG id"),
        ("dag_prefix: 7", "gddl.yaml:3", "dag_prefix", "can't begin a DAG id"),
        (f"dag_prefix: {'x' * 41}", "gddl.yaml:3", "dag_prefix", "can't begin a DAG id"),
        ("tiers:\n  a b: {}", "gddl.yaml:4", "tiers.a b", "not a name that is allowed"),
        ("runners:\n  local: x", "gddl.yaml:4", "runners.local", "must be a mapping"),
        ("defaults: x", "gddl.yaml:3", "defaults", "must be a mapping"),
        ("defaults:\n  delete: sotf", "gddl.yaml:4", "defaults.delete", "'hard' or 'soft'"),
        ("defaults:\n  table: a.b", "gddl.yaml:4", "defaults.table", "not a default"),
        ("defaults:\n  keys: [id]", "gddl.yaml:4", "defaults.keys", "not a default"),
        ("defaults:\n  size: giant", "gddl.yaml:4", "defaults.size", "no such tier"),
        ("defaults:\n  schedule: hourly", "gddl.yaml:4", "defaults.schedule", "neither a preset"),
        ("defaults:\n  freshness: soon", "gddl.yaml:4", "defaults.freshness", "duration"),
        ("defaults:\n  options:\n    lookbak: 1d", "gddl.yaml:5", "defaults.options.lookbak", "no such field"),
        ("defaults:\n  table_properties: {gddl.x: a}", "gddl.yaml:4", "defaults.table_properties.gddl.x", "reserved"),
    ],
)  # fmt: skip
def test_wrong_settings_stop_everything(tmp_path: Path, extra: str, place: str, field: str, message: str) -> None:
    folder = write(tmp_path, {"gddl.yaml": f"{SETTINGS}{extra}\n"})
    with pytest.raises(SettingsError) as error:
        load(folder, {})
    (problem,) = error.value.problems
    assert (problem.place, problem.field) == (place, field)
    assert message in problem.message
    assert f"{place}: {field}: {problem.message}" in str(error.value)


def test_every_fault_of_the_settings_is_named_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path, {"gddl.yaml": "landing: s3a://x\ntiers: {small: {cores: 0}}\ndefaults: {size: x}\n"})
    with pytest.raises(SettingsError) as error:
        load(folder, {})
    found = {problem.field for problem in error.value.problems}
    assert found == {"landing", "lake", "tiers.small.cores", "defaults.size"}


@pytest.mark.parametrize(
    ("content", "place"), [("landing: [\n", "gddl.yaml:2"), ("- a\n", "gddl.yaml:1"), (b"\xff\n", "gddl.yaml:1")]
)
def test_settings_that_cannot_be_read(tmp_path: Path, content: str | bytes, place: str) -> None:
    folder = write(tmp_path, {"gddl.yaml": content})
    with pytest.raises(SettingsError) as error:
        load(folder, {})
    assert [problem.place for problem in error.value.problems] == [place]


OWN = {
    "databricks": "wheel: /Volumes/a.whl, node_type: n",
    "emr_serverless": "execution_role: 'arn:a', entry_point: 's3://a'",
    "glue": "role: 'arn:a', script: 's3://a', wheel: 's3://a.whl'",
}


@pytest.mark.parametrize("runner", sorted(OWN))
def test_a_platform_accepts_folders_only_with_local_roots(tmp_path: Path, runner: str) -> None:
    def settings(own: str) -> dict[str, str | bytes]:
        return {"gddl.yaml": f"landing: s3://b/x\nlake: /lake\nrunner: {runner}\nrunners: {{{runner}: {{{own}}}}}\n"}

    with pytest.raises(SettingsError) as error:
        load(write(tmp_path, settings(OWN[runner])), {})
    (problem,) = error.value.problems
    assert (problem.code, problem.field, problem.place) == ("RUNNER_NEEDS_S3", "lake", "gddl.yaml:2")
    assert load(write(tmp_path, settings(OWN[runner])), {"GDDL_LAKE": "s3://b/lake"}).roots.lake == "s3://b/lake"
    assert loaded(tmp_path, settings(f"{OWN[runner]}, local_roots: true")).roots.lake == "/lake"


def test_landing_and_lake_must_differ(tmp_path: Path) -> None:
    folder = write(tmp_path, {"gddl.yaml": "landing: s3://b/x\nlake: s3://b/x/\n"})
    with pytest.raises(SettingsError, match="the same folder as landing"):
        load(folder, {})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GDDL_TIER__SMALL__CORES", "1", "names no section"),
        ("GDDL_TIERS", "x", "names no field"),
        ("GDDL_TIERS__SMALL", "5", "names no field"),
        ("GDDL_DEFAULTS__", "5", "names no field"),
        ("GDDL_DEFAULTS__CLUSTER_BY", "[a", "not a YAML value"),
        ("GDDL_TIERS__SMALL__CORES", "many", "must be a whole number"),
        ("GDDL_DEFAULTS__COLOUR", "red", "no such field"),
        ("GDDL_LAKE", "gs://x", "not a usable root"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, value: str, message: str) -> None:
    folder = write(tmp_path, {})
    with pytest.raises(SettingsError) as error:
        load(folder, {variable: value})
    (problem,) = error.value.problems
    assert problem.code in {"FIELD_UNKNOWN", "FIELD_TYPE", "FIELD_VALUE"}
    assert (problem.place, message in problem.message) == (f"environment variable {variable}", True)


def test_a_tier_of_one_table_a_job_has_no_packs_to_show(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tiers\.medium\.airflow: .*one table a job.*set tables_per_job above 1"):
        loaded(tmp_path, {"gddl.yaml": SETTINGS + "tiers:\n  medium: {airflow: mapped}\n"})
