"""Sources as part of a table's identity: layers, targets, collisions, names."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.names import TableNames
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.settings import SettingsError
from tests.unit.metadata_folder import SETTINGS, loaded, only_problem

TWO = (
    SETTINGS
    + """sources:
  crm: {landing: landing-crm, target: '{source}_{schema}.{table}', owner: team-crm}
  erp: {landing: /data/erp, target: '{source}_{schema}.{table}', connection: GDDL_SOURCE_ERP}
"""
)
ORDERS = "tables:\n  - {table: public.orders, keys: [id]}\n"


def two(folder: Path, environ: dict[str, str] | None = None, **files: str) -> LoadedMetadata:
    content = {"tables/crm.yaml": ORDERS, "tables/erp.yaml": ORDERS}
    return loaded(folder, {"gddl.yaml": TWO, **content, **{f"tables/{n}.yaml": t for n, t in files.items()}}, environ)


def by_name(catalog: LoadedMetadata) -> dict[str, TableSpec]:
    assert [str(problem) for problem in catalog.problems] == []
    return {spec.table: spec for spec in catalog.tables}


def test_two_sources_have_a_table_of_one_name(tmp_path: Path) -> None:
    catalog = two(tmp_path)
    tables = by_name(catalog)
    assert list(tables) == ["crm_public.orders", "erp_public.orders"]
    crm, erp = tables.values()
    assert (crm.source_table, crm.landing, crm.target) == ("public.orders", f"{tmp_path}/landing-crm", None)
    assert (crm.owner, erp.owner, erp.options) == ("team-crm", None, {"verify_connection": "GDDL_SOURCE_ERP"})
    layout = Layout.of(catalog.roots, crm)
    assert layout.landing == f"{tmp_path}/landing-crm/public/orders"
    assert layout.replica == f"{tmp_path}/lake/crm_public/orders"
    assert layout.state == f"{tmp_path}/lake/_gddl/ledger/crm_public/orders"


def test_a_source_that_is_not_declared_stays_as_it_was(tmp_path: Path) -> None:
    catalog = loaded(tmp_path, {"gddl.yaml": TWO, "tables/shop.yaml": ORDERS})
    assert by_name(catalog)["public.orders"] == TableSpec(table="public.orders", keys=("id",), source="shop")


def test_a_declared_source_without_a_target_keeps_the_name(tmp_path: Path) -> None:
    settings = SETTINGS + "sources:\n  shop:\n"
    catalog = loaded(tmp_path, {"gddl.yaml": settings, "tables/shop.yaml": ORDERS})
    spec = by_name(catalog)["public.orders"]
    assert (spec.source_table, spec.landing) == (None, f"{tmp_path}/landing")


def test_the_strongest_layer_wins(tmp_path: Path) -> None:
    settings = (
        SETTINGS
        + """defaults: {owner: all, size: medium, freshness: 1h, options: {lookback: 1d}}
sources:
  crm:
    owner: source
    options: {lookback: 2d}
    defaults: {size: large, priority: high, options: {date_partition: YYYYMM}}
"""
    )
    file = (
        "defaults: {priority: low}\ntables:\n  - {table: a.b, keys: [id]}\n  - {table: a.c, keys: [id], owner: row}\n"
    )
    tables = by_name(loaded(tmp_path, {"gddl.yaml": settings, "tables/crm.yaml": file}))
    shown = [(t.owner, t.size, t.priority, t.freshness) for t in tables.values()]
    assert shown == [("source", "large", "low", "1h"), ("row", "large", "low", "1h")]
    assert tables["a.b"].options == {"lookback": "2d", "date_partition": "YYYYMM"}


def test_origin_of_a_source_its_rows_and_its_shards(tmp_path: Path) -> None:
    settings = (
        SETTINGS
        + """sources:
  eu: {landing: landing-eu, region: eu-west-1, source_type: oracle}
  us: {landing: landing-us, defaults: {region: us-east-1}}
  log: {landing: landing-log, capture: {connector: postgresql}, connection: GDDL_SOURCE_LOG}
"""
    )
    rows = {
        "eu": "tables:\n  - {table: s.a, keys: [id]}\n  - {table: s.b, keys: [id], region: attic}\n",
        "all": "tables:\n  - {table: s.c, keys: [id], shards: [eu, us]}\n",
        "log": "tables:\n  - {table: s.d, keys: [id]}\n",
    }
    catalog = loaded(tmp_path, {"gddl.yaml": settings, **{f"tables/{name}.yaml": text for name, text in rows.items()}})
    tables = by_name(catalog)
    origins = {name: (spec.source_type, spec.region) for name, spec in tables.items()}
    assert origins == {
        "s.a": ("oracle", "eu-west-1"), "s.b": ("oracle", "attic"), "s.c": (None, None), "s.d": ("postgresql", None)
    }  # fmt: skip
    parts = {shard: tables["s.c"].of_shard(shard) for shard in ("eu", "us")}
    assert {shard: (part.source_type, part.region) for shard, part in parts.items()} == {
        "eu": ("oracle", "eu-west-1"), "us": (None, "us-east-1")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"), [("region", "'EU (Ireland)'"), ("region", "''"), ("source_type", "postgres")]
)
def test_an_origin_that_is_none_is_refused(tmp_path: Path, field: str, value: str) -> None:
    settings = SETTINGS + f"sources:\n  crm: {{landing: landing-crm, {field}: {value}}}\n"
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, {"gddl.yaml": settings, "tables/crm.yaml": ORDERS})
    (problem,) = caught.value.problems
    assert (problem.code, problem.field) == ("FIELD_VALUE", f"sources.crm.{field}")


def test_a_landing_root_by_environment(tmp_path: Path) -> None:
    catalog = two(tmp_path, {"GDDL_SOURCES__CRM__LANDING": "/elsewhere", "GDDL_SOURCES__ERP__DEFAULTS__SIZE": "large"})
    tables = by_name(catalog)
    assert tables["crm_public.orders"].landing == "/elsewhere"
    assert tables["erp_public.orders"].size == "large"


@pytest.mark.parametrize("row", ["target: 'own.{table}'", "target: own.orders"])
def test_a_row_names_its_target_itself(tmp_path: Path, row: str) -> None:
    file = f"tables:\n  - {{table: public.orders, keys: [id], {row}}}\n"
    assert set(by_name(two(tmp_path, crm=file))) == {"own.orders", "erp_public.orders"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{source}_{shema}.{table}", "no such placeholder: {shema}"),
        ("{source}_{schema}_{table}", "not schema.name: it has no dot"),
        ("{source.__class__}.{table}", "no such placeholder: {source.__class__}"),
        ("{source!r}.{table}", "a placeholder is a name alone"),
        ("{}.{table}", "no such placeholder: {}"),
        ("{source.{table}", "not a template"),
        ("a/b.{table}", "ASCII letters"),
        ("../x.{table}", "ASCII letters"),
        ("_gddl.{table}", "this package's own"),
        ("{schema}.{table}__changes", "this package's own"),
        ("{schema}.{table}.{source}", "ASCII letters"),
        ("", "not schema.name"),
    ],
)
def test_a_target_that_is_none_is_refused_where_it_stands(tmp_path: Path, target: str, message: str) -> None:
    settings = SETTINGS + f"sources:\n  crm:\n    target: '{target}'\n"
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path / "source", {"gddl.yaml": settings, "tables/crm.yaml": ORDERS})
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.field) == ("FIELD_VALUE", 5, "sources.crm.target")
    file = f"tables:\n  - table: public.orders\n    keys: [id]\n    target: '{target}'\n"
    problem = only_problem(loaded(tmp_path / "row", {"tables/shop.yaml": file}))
    assert (problem.code, problem.line) == ("FIELD_VALUE", 4)
    assert message in problem.message
    assert "'{source}_{schema}.{table}'" in problem.remedy


def test_a_target_that_a_name_spoils_is_refused(tmp_path: Path) -> None:
    settings = SETTINGS + "sources:\n  crm.eu: {target: '{source}_{schema}.{table}'}\n"
    problem = only_problem(loaded(tmp_path, {"gddl.yaml": settings, "tables/crm.eu.yaml": ORDERS}))
    assert problem.code == "FIELD_VALUE"
    assert "crm.eu:public.orders would be 'crm.eu_public.orders'" in problem.message


def collision(folder: Path, settings: str, **files: str) -> Problem:
    content = {f"tables/{name}.yaml": text for name, text in files.items()}
    return only_problem(loaded(folder, {"gddl.yaml": SETTINGS + settings, **content}))


def test_one_target_of_two_tables_is_refused(tmp_path: Path) -> None:
    sources = "sources:\n  crm: {landing: crm}\n  erp: {landing: erp}\n"
    problem = collision(tmp_path, sources, crm=ORDERS, erp=ORDERS)
    assert (problem.code, problem.table, problem.place) == ("TARGET_TAKEN", "public.orders", "tables/erp.yaml:2")
    assert (
        "erp:public.orders and crm:public.orders (tables/crm.yaml:2) have the target public.orders" in problem.message
    )
    assert "target: '{source}_{schema}.{table}'" in problem.remedy


@pytest.mark.parametrize(
    ("topic", "other"), [("crm.all", "erp"), ("'crm.{schema}.{table}'", "'orders x'"), ("'{schema}'", "erp")]
)
def test_one_topic_of_two_tables_is_refused(topic: str, other: str, tmp_path: Path) -> None:
    """Only one of them would get its messages."""
    options = f"options: {{bootstrap_servers: 'kafka:9092', topic: {topic}}}"
    sources = f"sources:\n  crm: {{dialect: debezium, {options}}}\n"
    tables = ["'public.orders x'", "public.orders_x" if "x" in other else "public.lines"]
    rows = "tables:\n" + "".join(f"  - {{table: {name}, keys: [id]}}\n" for name in tables)
    problem = collision(tmp_path, sources, crm=rows)
    assert (problem.code, problem.field) == ("FIELD_VALUE", "options.topic")
    assert "public.orders x (tables/crm.yaml:2)" in problem.message


@pytest.mark.parametrize(
    ("connection", "slot", "is_refused"),
    [
        ("GDDL_SOURCE_A", "", True),
        ("GDDL_SOURCE_B", "", False),
        ("GDDL_SOURCE_A", ", properties: {slot.name: own}", False),
    ],
)
def test_one_slot_of_two_sources_is_refused(connection: str, slot: str, is_refused: bool, tmp_path: Path) -> None:
    """Names of slots have no `-`; the rows of one source share its slot."""
    settings = f"""{SETTINGS}sources:
  crm-a: {{connection: GDDL_SOURCE_A, capture: {{connector: postgresql}}}}
  crm_a: {{connection: {connection}, capture: {{connector: postgresql{slot}}}}}
"""
    two_rows = "tables:\n  - {table: a.x, keys: [id]}\n  - {table: a.y, keys: [id]}\n"
    files = {"gddl.yaml": settings, "tables/crm-a.yaml": two_rows, "tables/crm_a.yaml": two_rows.replace("a.", "b.")}
    problems = loaded(tmp_path, files).problems
    assert [(one.code, one.table) for one in problems] == [("FIELD_VALUE", "b.x"), ("FIELD_VALUE", "b.y")] * is_refused
    assert all("by the slot gddl_crm_a, as that of crm-a:a.x" in one.message for one in problems)


def test_targets_that_differ_by_case_alone_are_one(tmp_path: Path) -> None:
    sources = "sources:\n  crm: {landing: crm, target: 'LAKE.{table}'}\n  erp: {landing: erp, target: 'lake.{table}'}\n"
    assert collision(tmp_path, sources, crm=ORDERS, erp=ORDERS).code == "TARGET_TAKEN"


def test_a_table_twice_in_one_source_is_refused_whatever_its_targets(tmp_path: Path) -> None:
    rows = (
        "tables:\n  - {table: public.orders, keys: [id]}\n  - {table: PUBLIC.orders, keys: [id], target: other.name}\n"
    )
    problem = collision(tmp_path, "sources:\n  crm: {landing: crm}\n", crm=rows)
    assert (problem.code, problem.place) == ("TABLE_DUPLICATE", "tables/crm.yaml:3")


@pytest.mark.parametrize(
    ("crm", "erp", "file"),
    [
        ("shared", "shared", ORDERS),
        ("shared", "./x/../shared", ORDERS),
        ("landing", "null", ORDERS),
        ("root", "root/public/orders", "tables:\n  - {table: a.b, keys: [id]}\n"),
        ("root/public/orders/x", "root", ORDERS),
        ("s3://bucket/root/", "s3://bucket/root", ORDERS),
    ],
)
def test_landing_folders_that_mix_are_refused(tmp_path: Path, crm: str, erp: str, file: str) -> None:
    template = "target: '{source}_{schema}.{table}'"
    sources = f"sources:\n  crm: {{landing: {crm}, {template}}}\n  erp: {{landing: {erp}, {template}}}\n"
    problem = collision(tmp_path, sources, crm=ORDERS, erp=file)
    assert problem.code == "LANDING_SHARED"
    assert "crm:public.orders" in problem.message
    assert "landing root of its own" in problem.remedy


def test_nested_roots_whose_folders_do_not_mix_are_fine(tmp_path: Path) -> None:
    sources = "sources:\n  crm: {landing: landing/crm, target: 'crm.{table}'}\n"
    assert set(by_name(loaded(tmp_path, {"gddl.yaml": SETTINGS + sources, "tables/crm.yaml": ORDERS,
                                         "tables/shop.yaml": ORDERS}))) == {"crm.orders", "public.orders"}  # fmt: skip


@pytest.mark.parametrize(
    ("section", "code", "field"),
    [
        ("[crm]", "FIELD_TYPE", "sources"),
        ("{crm: ../crm}", "FIELD_TYPE", "sources.crm"),
        ("{'c/rm': {}}", "FIELD_VALUE", "sources.c/rm"),
        ("{crm: {root: x}}", "FIELD_UNKNOWN", "sources.crm.root"),
        ("{crm: {landing: 's3a://x'}}", "FIELD_VALUE", "sources.crm.landing"),
        ("{crm: {landing: lake}}", "FIELD_VALUE", "sources.crm.landing"),
        ("{crm: {landing: [a]}}", "FIELD_TYPE", "sources.crm.landing"),
        ("{crm: {dialect: oracle}}", "FIELD_VALUE", "sources.crm.dialect"),
        ("{crm: {options: {nope: 1}}}", "FIELD_UNKNOWN", "sources.crm.options.nope"),
        ("{crm: {connection: 'postgresql://u:p@h/d'}}", "SECRET_LIKE", "sources.crm.connection"),
        ("{crm: {connection: 'not a name'}}", "FIELD_VALUE", "sources.crm.connection"),
        ("{crm: {defaults: {keys: [id]}}}", "FIELD_REFUSED", "sources.crm.defaults.keys"),
        ("{crm: {defaults: {source: erp}}}", "FIELD_REFUSED", "sources.crm.defaults.source"),
        ("{crm: {defaults: {size: huge}}}", "FIELD_VALUE", "sources.crm.defaults.size"),
        ("{crm: {defaults: {landing: x}}}", "FIELD_UNKNOWN", "sources.crm.defaults.landing"),
    ],
)
def test_a_wrong_source_is_refused(tmp_path: Path, section: str, code: str, field: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, {"gddl.yaml": f"{SETTINGS}sources: {section}\n"})
    assert [(p.code, p.field, p.line) for p in caught.value.problems] == [(code, field, 3)]
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("name", ["source_table", "landing"])
def test_what_is_resolved_is_not_written(tmp_path: Path, name: str) -> None:
    file = f"tables:\n  - {{table: a.b, keys: [id], {name}: x.y}}\n"
    assert only_problem(loaded(tmp_path, {"tables/a.yaml": file})).code == "FIELD_UNKNOWN"


def test_a_platform_needs_the_landing_root_of_a_source_in_an_object_store(tmp_path: Path) -> None:
    settings = "landing: s3://b/l\nlake: s3://b/k\nrunner: glue\nrunners: {glue: {role: r, code: s3://b/c}}\n"
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, {"gddl.yaml": settings + "sources: {crm: {landing: /mnt/crm}}\n"})
    assert ("RUNNER_NEEDS_S3", "sources.crm.landing") in [(p.code, p.field) for p in caught.value.problems]


def test_dependencies_are_found_in_the_own_source_first(tmp_path: Path) -> None:
    file = ORDERS + "  - {table: public.items, keys: [id], depends_on: [public.orders, 'erp:public.orders']}\n"
    items = by_name(two(tmp_path, crm=file))["crm_public.items"]
    assert items.depends_on == ("crm_public.orders", "erp_public.orders")


def test_the_heartbeat_of_a_source_is_its_own_table(tmp_path: Path) -> None:
    settings = TWO.replace("landing-crm,", "landing-crm, heartbeat: ops.beat,")
    beats = "  - {table: ops.beat, keys: [id]}\n"
    tables = {f"tables/{name}.yaml": ORDERS + beats for name in ("crm", "erp")}
    found = by_name(loaded(tmp_path, {"gddl.yaml": settings, **tables}))
    assert {name: spec.heartbeat for name, spec in found.items()} == {
        "crm_public.orders": "crm_ops.beat", "crm_ops.beat": "crm_ops.beat",
        "erp_public.orders": None, "erp_ops.beat": None,
    }  # fmt: skip


def test_a_dependency_that_several_tables_may_be_is_refused(tmp_path: Path) -> None:
    file = "tables:\n  - {table: a.b, keys: [id], depends_on: [public.orders]}\n"
    problem = only_problem(two(tmp_path, shop=file))
    assert (problem.code, problem.field) == ("TABLE_AMBIGUOUS", "depends_on[0]")
    assert "'public.orders' may be crm:public.orders, erp:public.orders" in problem.message


def test_an_own_table_and_a_target_of_one_name_are_ambiguous(tmp_path: Path) -> None:
    file = ORDERS + "  - {table: public.items, keys: [id], depends_on: [public.orders]}\n"
    problem = only_problem(two(tmp_path, crm=file, shop=ORDERS))
    assert (problem.code, problem.table) == ("TABLE_AMBIGUOUS", "crm:public.items")
    assert "may be crm:public.orders, public.orders" in problem.message


def keyed(folder: Path, *names: str) -> LoadedMetadata:
    rows = "tables:\n  - {table: public.orders}\n"
    keys = "keys:\n" + "".join(f"  {name}: [id]\n" for name in names)
    return loaded(folder, {"gddl.yaml": TWO, "tables/crm.yaml": rows, "tables/erp.yaml": rows, "keys/k.yaml": keys})


def test_keys_are_found_by_longer_names(tmp_path: Path) -> None:
    catalog = keyed(tmp_path, "'crm:public.orders'", "erp_public.orders")
    assert [spec.keys for spec in by_name(catalog).values()] == [("id",), ("id",)]
    assert catalog.unused_keys == ()


def test_keys_of_a_name_that_two_tables_have_are_refused(tmp_path: Path) -> None:
    problems = keyed(tmp_path, "public.orders").problems
    assert [(p.code, p.table) for p in problems] == [
        ("TABLE_AMBIGUOUS", "crm:public.orders"),
        ("TABLE_AMBIGUOUS", "erp:public.orders"),
    ]
    assert "write source:schema.table, e.g. crm:public.orders" in problems[0].remedy


def test_names_find_tables(tmp_path: Path) -> None:
    names = TableNames(two(tmp_path, shop="tables:\n  - {table: a.b, keys: [id]}\n").tables)
    assert names.find("crm_public.orders") == names.find("crm:public.orders") == "crm_public.orders"
    assert (names.find("a.b"), names.find("shop:a.b"), names.find("crm:a.b"), names.find("x")) == (
        "a.b",
        "a.b",
        None,
        None,
    )
    with pytest.raises(MetadataError, match=r"TABLE_AMBIGUOUS.*crm:public.orders, erp:public.orders"):
        names.find("public.orders")


def test_a_target_comes_before_a_name_in_a_source(tmp_path: Path) -> None:
    assert TableNames(two(tmp_path, shop=ORDERS).tables).find("public.orders") == "public.orders"
