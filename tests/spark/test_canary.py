"""No text of a row or a file makes Spark look up a variable, and none changes a statement."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Maintain, Rebuild, Verify
from airflow_gddl.contract.extensions import DIALECTS, CaptureSpec
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, TableSpec
from airflow_gddl.contract.table_spec import Expectation, InitialLoad, LandingRetention, SchemaGate, Term
from tests.conftest import LocalPort
from tests.harness.engine_port import EngineName
from tests.harness.lake import Lake
from tests.harness.landing import write, write_bytes
from tests.spark.children import job_child

CANARY = "canary-4711-value"
NAMES = ("system:gddl.canary", "env:GDDL_CANARY", "spark:spark.gddl.canary", "hiveconf:spark.gddl.canary",
         "spark.gddl.canary")  # fmt: skip
LATER = (JobOptions(action=Maintain()), JobOptions(action=Rebuild()), JobOptions(action=Verify()))
HOSTILE = "".join(f"${{{name}}}" for name in NAMES) + " '\\' \" ` \n -- /* {table} ;"


@pytest.fixture
def canary(spark: LocalPort, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value behind each name by which Spark substitutes variables; the environment of Java can't be altered."""
    monkeypatch.setenv("GDDL_CANARY", CANARY)
    session = spark.spark.for_table()
    session._jvm.java.lang.System.setProperty("gddl.canary", CANARY)
    session.sparkContext.getConf().set("spark.gddl.canary", CANARY)


def hostile_spec() -> TableSpec:
    """A row as no check lets it through, with the text in every field that a table or its log may show."""
    return TableSpec(
        table="s.t",
        keys=("id",),
        sequence_by=("seq",),
        settle="0s",
        description=HOSTILE,
        column_descriptions={"id": HOSTILE, HOSTILE: HOSTILE},
        table_properties={f"user.{HOSTILE}": HOSTILE},
        tags={HOSTILE: HOSTILE},
        owner=HOSTILE,
        mask={f"m{HOSTILE}": "hash"},
        exclude_columns=(f"x{HOSTILE}",),
        history=True,
    )


def land(lake: Lake, spec: TableSpec, name: str, extra: dict[str, pa.Array]) -> None:
    columns = {"id": pa.array([1, 2], pa.int32()), HOSTILE: pa.array([1, 2], pa.int32()), "v": [HOSTILE, "b"]}
    columns |= {f"m{HOSTILE}": ["x", "y"], f"x{HOSTILE}": ["x", "y"], **extra}
    write(Path(lake.layout(spec).landing), name, pa.table(columns))


@pytest.mark.usefixtures("canary")
def test_no_variable_is_looked_up(spark: LocalPort, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lake, spec = Lake(tmp_path, DEFAULT_TIERS["small"]), hostile_spec()
    land(lake, spec, "LOAD00000001.parquet", {})
    results = [lake.results(spark, lake.job([spec]))]
    changes = {"Op": ["U", "U"], "seq": [1, 2], HOSTILE: pa.array([2**40, 5]), f"n{HOSTILE}": ["x", "y"]}
    land(lake, spec, "20240101-000000001.parquet", {**changes, "s": pa.array([{HOSTILE: 1}, {HOSTILE: 2}])})
    results.append(lake.results(spark, lake.job([replace(spec, cluster_by=(HOSTILE,))])))
    results += [lake.results(spark, lake.job([spec], options)) for options in LATER]
    for number, result in enumerate(results):
        assert result["s.t"].error is None, (number, result["s.t"].error)
    rows = spark.read(lake.layout(spec).replica)
    # Delta allows no braces in names of columns: the first one is `$_system:...`.
    assert {row["id"]: [v for name, v in row.items() if name.startswith("$_")] for row in rows} == {1: [2**40], 2: [5]}
    assert {(row["id"], *row["s"].values()) for row in rows} == {(1, 1), (2, 2)}
    shown = "".join(capfd.readouterr()) + repr(results)
    places = [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert places == []
    assert CANARY not in shown
    log = (Path(lake.layout(spec).replica) / "_delta_log").glob("*.json")
    assert "${env:GDDL_CANARY}" in "".join(file.read_text() for file in log)  # kept as it was written


@pytest.mark.usefixtures("canary")
def test_spark_would_look_them_up(spark: LocalPort) -> None:
    """Else the test above finds nothing because there is nothing to find."""
    session = spark.spark.for_table()
    text = "SELECT '${system:gddl.canary}' AS v"
    assert session.sql(text).collect()[0][0] == "${system:gddl.canary}"
    session.conf.set("spark.sql.variable.substitute", "true")
    assert session.sql(text).collect()[0][0] == CANARY


TEXTS = [f.name for f in fields(TableSpec) if "Literal" not in str(f.type) and f.type in ("str", "str | None")]


@pytest.mark.parametrize("name", TEXTS)
def test_rows_with_substitutions_are_refused(name: str) -> None:
    row = replace(TableSpec(table="s.t", keys=("id",)), **{name: "${env:HOME}"})
    assert ("FIELD_VALUE", (name,)) in [(p.code, p.path) for p in check_table(row)]


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("options", {"types": {"${env:HOME}": "string"}}, ("options", "types", "${env:HOME}")),
        ("column_descriptions", {"v": "${env:HOME}"}, ("column_descriptions", "v")),
        ("keys", ("id", "${env:HOME}"), ("keys", 1)),
        ("tags", {"team": "${env:HOME}"}, ("tags", "team")),
    ],
    ids=["names", "values", "lists", "tags"],
)
def test_substitutions_within_fields_are_refused(field: str, value: Any, path: tuple[str | int, ...]) -> None:
    row = replace(TableSpec(table="s.t", keys=("id",)), **{field: value})
    assert ("FIELD_VALUE", path) in [(p.code, p.path) for p in check_table(row)]


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "canary-of-aws-0123456789",
    "AWS_SESSION_TOKEN": "canary-of-a-session-0123456789",
    "GDDL_MASK_KEY": "canary-of-the-mask-0123456789abcdef",
    "GDDL_SOURCE_SHOP": "postgresql://ann:canary-of-a-database@host/db",
    "AIRFLOW_CONN_SHOP": "aws://key:canary-of-a-connection@",
    "DATABRICKS_TOKEN": "canary-of-databricks-0123456789",
    "GDDL_CANARY": "canary-of-anything-0123456789",
}


EVENT = {
    "op": "c",
    "after": {"id": 1, "v": HOSTILE, HOSTILE: HOSTILE},
    "source": {"connector": "postgresql", "lsn": 1, "ts_ms": 1, HOSTILE: HOSTILE},
}


def variants() -> list[TableSpec]:
    """Rows as no check lets them through: each has the text in one place of one field or of one option."""
    found = []
    for dialect, kind in (
        (None, TableSpec),
        *((name, DIALECTS.load(one.options)) for name, one in DIALECTS.built_in.items()),
    ):
        hints = get_type_hints(kind)
        for field in fields(kind):
            for value in hostile_values(hints[field.name]) if field.name not in RESOLVED else ():
                given = {field.name: value} if dialect is None else {"options": {field.name: value}, "dialect": dialect}
                plain = {"keys": ("id",), "sequence_by": ("seq",) if dialect in (None, "dms") else (), "settle": "0s"}
                trees = {"expressions": TREES} if field.name in ("derive", "expect", "where") else {}
                found.append(TableSpec(table=f"s.t{len(found)}", **{**plain, **trees, **given}))
    return found


RULE = "v = 'b'"
V = Term(op="column", value="v")
TREE = Term(op="or", args=(Term(op="is null", args=(V,)), Term(op="<>", args=(V, Term(op="text", value=HOSTILE)))))
TREES = {RULE: TREE, HOSTILE: TREE}
"""What texts of expressions mean: whether `v` has another text than the hostile one."""
RESOLVED = {"table", "dialect", "source_table", "landing", "shard_landings", "shard_origins", "mask_key_id"}
"""The identity of a table and its reader, and fields that no row has."""


def hostile_values(hint: Any) -> list[Any]:
    """Values of a type with the text in one place; none for numbers, switches and closed lists: others are refused."""
    kind, within = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return [value for one in within for value in hostile_values(one)]
    if is_dataclass(kind):
        hints, (usual, *_) = get_type_hints(kind), usual_values(kind)
        return [replace(usual, **{name: value}) for name, one in hints.items() for value in hostile_values(one)]
    if kind is Mapping:
        values = [{name: value} for value in hostile_values(within[1]) for name in (HOSTILE, "v")]
        return [*values, *({HOSTILE: value} for value in usual_values(within[1]))]
    if kind is tuple:
        return (
            [] if within[0] is Term else [(*before, v) for v in hostile_values(within[0]) for before in ((), ("id",))]
        )
    return [HOSTILE] if kind in (str, Any) else []


def usual_values(hint: Any) -> list[Any]:
    kinds = {
        CaptureSpec: [CaptureSpec(connector="postgresql")],
        Expectation: [Expectation(rule=RULE)],
        InitialLoad: [InitialLoad()],
        LandingRetention: [LandingRetention(after="1d")],
        SchemaGate: [SchemaGate()],
        Term: [TREE],
        tuple: [("v",)],
    }
    return list(get_args(hint)) if get_origin(hint) is Literal else kinds.get(get_origin(hint) or hint, ["string"])


def test_every_field_of_a_row_has_variants() -> None:
    changed = {f.name for spec in variants() for f in fields(spec) if f"{HOSTILE!r}" in repr(getattr(spec, f.name))}
    closed = {f.name for f in fields(TableSpec) if not re.search(r"\bstr\b|\bAny\b|MaskMethod", str(f.type))}
    assert {field.name for field in fields(TableSpec)} - changed - closed == RESOLVED


@pytest.mark.parametrize("engine_name", ["one", pytest.param("many", marks=pytest.mark.deep)])
def test_no_field_of_a_row_shows_a_variable(engine_name: EngineName, tmp_path: Path) -> None:
    """Each variant is loaded, changed, maintained and rebuilt, or refused; whatever becomes of it, no file of
    lake or landing, no log and no result has the value of a variable."""
    lake, specs, port = Lake(tmp_path, DEFAULT_TIERS["small"]), variants(), LocalPort(engine_name)
    for spec in specs:
        if spec.dialect == "debezium":
            write_bytes(Path(lake.layout(spec).landing), "t+0+0000000000.json", json.dumps(EVENT).encode())
            continue
        land(lake, spec, "LOAD00000001.parquet", {})
        changes = {"Op": ["U", "U"], "seq": [1, 2], f"n{HOSTILE}": ["x", "y"]}
        land(lake, spec, "20240101-000000001.parquet", changes)
    given = " ".join(f"-D{name.rpartition(':')[2]}={CANARY}" for name in NAMES if not name.startswith("env:"))
    environ = {**os.environ, "GDDL_CANARY": CANARY, "GDDL_MASK_KEY": "k" * 32, "SPARK_SUBMIT_OPTS": given}
    for number, options in enumerate((JobOptions(), *LATER[:2])):
        job = port.tiered(lake.job(specs, options, run_id=f"run-{number}"))
        if engine_name == "many":  # by Spark's own statements
            job = replace(job, tiers={name: replace(tier, commit="merge") for name, tier in job.tiers.items()})
        with job_child(job, "--progress", "--verbose", "--results", env=environ) as child:
            ended = child.end(timeout=1200)
        results = [json.loads(line) for line in ended.out.splitlines()]
        assert {result["table"] for result in results} == {spec.table for spec in specs}, ended
        codes = Counter((result["error"] or {"code": result["status"]})["code"] for result in results)
        assert number or codes["succeeded"] > len(specs) * 2 / 3, codes
        assert CANARY not in ended.out + ended.err
    places = [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert places == []


@pytest.mark.parametrize("engine_name", ["one", pytest.param("many", marks=pytest.mark.deep)])
def test_no_value_of_the_environment_is_kept(engine_name: EngineName, tmp_path: Path) -> None:
    """A job as it is started, with files that it takes, refuses and can't read: no file of the lake and no line of its
    output has a value of its environment."""
    lake = Lake(tmp_path, DEFAULT_TIERS["small"])
    spec = replace(hostile_spec(), mask={f"m{HOSTILE}": "hmac"})
    land(lake, spec, "LOAD00000001.parquet", {})
    broken = TableSpec(table="s.broken", keys=("id",), settle="0s", description=HOSTILE)
    write_bytes(Path(lake.layout(broken).landing), "LOAD00000001.parquet", HOSTILE.encode())
    job = LocalPort(engine_name).tiered(lake.job([spec, broken]))
    with job_child(job, "--progress", "--verbose", "--results", env={**os.environ, **SECRETS}) as child:
        ended = child.end()
    results = {line["table"]: line for line in map(json.loads, ended.out.splitlines())}
    assert results["s.t"]["status"] == "succeeded", ended
    assert results["s.broken"]["error"]["code"] == "FIRST_LOAD_UNREADABLE", ended
    canaries = [value for name, value in SECRETS.items() if name != "GDDL_SOURCE_SHOP"] + ["canary-of-a-database"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    found = [(path.name, text) for path in files for text in canaries if text.encode() in path.read_bytes()]
    assert found == []
    assert [text for text in canaries if text in ended.out + ended.err] == []
