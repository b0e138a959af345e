"""The pages say what the code says: codes, fields, defaults, commands, links, and sections that the code refers to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from airflow_gddl.cli.commands import app
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.codes import QUARANTINED, REGISTER, Code
from airflow_gddl.contract.connections import LENT_PREFIX
from airflow_gddl.contract.extensions import DebeziumOptions, DmsOptions
from airflow_gddl.contract.result import JobResult, MainCounts
from airflow_gddl.contract.spec import DEFAULT_TIERS, Roots, TableSpec, TierSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from airflow_gddl.metadata import files
from airflow_gddl.metadata.settings import FIELDS as SETTINGS
from airflow_gddl.metadata.sources import SourceSpec
from airflow_gddl.metadata.validation import EXAMPLES as MAPPINGS
from airflow_gddl.metadata.validation import TABLE
from airflow_gddl.runners.databricks.settings import DatabricksSettings, DatabricksTier
from airflow_gddl.runners.emr_serverless.settings import EmrSettings, EmrTier
from airflow_gddl.runners.glue.settings import GlueSettings, GlueTier
from airflow_gddl.runners.spark_submit import SparkSubmitSettings
from devtools.website.codes import written
from spark_jobs.plan.table_schema import EVENT_FIELDS, TableSchema
from tests.unit.metadata_folder import loaded
from tests.unit.pages import DOCS, PAGES, ROOT, SOURCES, TESTS, anchors, bare, commands, page, rows, section, trees

CODE = re.compile(r"(?=.{4})[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
NAMED_FILE = re.compile(r"`((?:airflow_gddl|spark_jobs|tests|docs|metadata|benchmarks|devtools)/[\w./-]*)`")
REFERENCE = re.compile(r"(semantics|design)(?:\.md)?`?,? (section|rule)?s? ?((?:\d+(?:, | and | to )?)+)")
NEEDED = {
    "databricks": {"wheel": "/Volumes/a.whl"},
    "emr_serverless": {"execution_role": "arn:a", "entry_point": "s3://a"},
    "glue": {"role": "arn:a", "script": "s3://a", "wheel": "s3://a.whl"},
    "spark_submit": {"master": "yarn"},
}
RUNNERS = ("spark_submit",)


# Codes


def documented_codes() -> list[list[str]]:
    return [[bare(row[0]), *row[1:]] for row in rows(page("codes.md").split("\n## ", 1)[1])]


def named(paths: Iterable[Path]) -> frozenset[str]:
    """Names and texts of Python modules, but of the register."""
    found: set[str] = set()
    for path in paths:
        if "contract/codes" not in path.as_posix():
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                found |= {getattr(node, "id", ""), getattr(node, "attr", "")}
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.update(CODE.findall(node.value))
    return frozenset(found)


def test_each_code_is_named_by_a_raiser_and_by_a_test() -> None:
    assert REGISTER.keys() - named(SOURCES) == set(), "in the register, raised nowhere"
    expected = (*(ROOT / "tests").rglob("*.yaml"), ROOT / "tests/unit/mistakes.txt")
    texts = "".join(path.read_text(encoding="utf-8") for path in expected)
    assert REGISTER.keys() - named(TESTS) - {*CODE.findall(texts)} == set(), "no test raises it"


def test_raisers_name_the_value_of_the_register() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value}"
        for package in ("airflow_gddl", "spark_jobs")
        for path in (ROOT / package).rglob("*.py")
        if "contract/codes" not in path.as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in REGISTER and node.value != "CONTRACT_VERSION"
    ]
    assert found == []


def test_the_page_of_codes_is_printed_from_the_register() -> None:
    """`python -m devtools.website.codes` writes it."""
    assert written(page("codes.md")) == page("codes.md")


@pytest.mark.parametrize("code", sorted(QUARANTINED))
def test_each_remedy_of_the_quarantine_can_work(code: Code) -> None:
    """A correction at the source is a new change: the row in quarantine stays there until it is dismissed."""
    assert re.search(r"replay|dismiss|read when it changes|run `gddl rebuild", code.do), code.do
    assert "dismiss" in code.do or not re.search(r"the source\b|can't be", code.do), code.do


def test_codes_have_a_known_kind_a_meaning_and_a_remedy() -> None:
    kinds = {"fatal", "setup", "retried", "retriable", "problem", "row", "file", "warning", "advice"}
    wrong = [code for code in REGISTER.values() if not kinds.issuperset(code.kind.split(", "))]
    assert (
        wrong
        == [code for code in REGISTER.values() if not (code.means and code.do) or "|" in code.means + code.do]
        == []
    )
    assert all(name == str(code) and len(code.means.split()) < 30 for name, code in REGISTER.items())


def test_codes_that_other_pages_name_exist() -> None:
    known = {row[0] for row in documented_codes()}
    variables = {
        "AIRFLOW_CONN_ERP_FILES",
        "AIRFLOW_CONN_NAME",
        "AIRFLOW_HOME",
        "AR_H_CHANGE_SEQ",
        "ERROR_TIME",
        "SOURCE_TIMESTAMP_APPLIED",
        "STATUS_TIME",
        "TABLE_NAME",
        "AR_H_COMMIT_TIMESTAMP",
        "AR_H_TIMESTAMP",
        "JAVA_HOME",
        "JAVA_TOOL_OPTIONS",
        "NO_CODEGEN",
        "DATABRICKS_HOST",
        "DATABRICKS_TOKEN",
        "PERFORMANCE_OPTIMIZED",
        "CAN_MANAGE",
        "CAN_MANAGE_RUN",
        "CLOUD_FAILURE",
        "INTERNAL_ERROR",
        "HADOOP_CONF_DIR",
        "PIP_INDEX_URL",
        "PYSPARK_SUBMIT_ARGS",
        "SOURCE_DATE_EPOCH",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "SHOP_DB",
        "AIRFLOW_IMAGE",
        "POSTGRES_IMAGE",
        "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE",
        "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
        "COMMIT_TIME_ORDERING",
        "EVENT_TIME_ORDERING",
        "DROP_AND_CREATE",
        "DO_NOTHING",
        "NOT_DRAWN",
        "SPARK_CONF_DIR",
        "SQL_ASCII",
    }
    clients = ("GDDL_", "AWS_", "ARROW_")
    for path in PAGES:
        named = re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", path.read_text(encoding="utf-8"))
        assert {n for n in named if not n.startswith(clients)} - known - variables == set(), path.name


# Metadata


def defaults_of(cls: type) -> dict[str, Any]:
    """Field to its default in plain values, in order; `required` where there is none."""
    required: dict[str, Any] = {"table": "", "keys": ()} if cls is TableSpec else {}
    required |= {
        DatabricksSettings: NEEDED["databricks"],
        EmrSettings: NEEDED["emr_serverless"],
        GlueSettings: NEEDED["glue"],
        SparkSubmitSettings: NEEDED["spark_submit"],
    }.get(cls, {})
    built = cls(**required)
    resolved = TABLE.resolved if cls is TableSpec else ()
    names = [f.name for f in fields(cls) if f.name not in resolved]
    return {name: "required" if name in required else plain(getattr(built, name)) for name in names}


TABLES: Mapping[str, Mapping[str, Any]] = {
    "Settings": {
        "landing": "required",
        "lake": "required",
        "runner": "local",
        "aws_conn_id": None,
        "dag_prefix": "",
        **{name: {} for name in SETTINGS[5:]},
    },
    "A source": defaults_of(SourceSpec),
    "A row": defaults_of(TableSpec),
    "Schema evolution": defaults_of(SchemaEvolution),
    "DMS options": defaults_of(DmsOptions),
    "Debezium options": defaults_of(DebeziumOptions),
    "Tiers": defaults_of(TierSpec),
    "databricks": defaults_of(DatabricksSettings),
    "databricks tiers": defaults_of(DatabricksTier),
    "emr_serverless": defaults_of(EmrSettings),
    "emr_serverless tiers": defaults_of(EmrTier),
    "glue": defaults_of(GlueSettings),
    "glue tiers": defaults_of(GlueTier),
    "spark_submit": defaults_of(SparkSubmitSettings),
}


def documented_fields(title: str) -> list[list[str]]:
    return [row for row in rows(section("metadata.md", title)) if len(row) == 4]


@pytest.mark.parametrize("title", TABLES)
def test_every_field_is_documented_with_its_default(title: str) -> None:
    found = {bare(row[0]): row[2] for row in documented_fields(title)}
    assert list(found) == list(TABLES[title]), "fields and their order"
    for name, cell in found.items():
        expected = TABLES[title][name]
        assert (cell if cell == "required" else files.read_yaml(bare(cell))) == expected, name


def test_settings_are_those_of_the_catalog() -> None:
    assert tuple(TABLES["Settings"]) == SETTINGS
    assert SETTINGS[:2] == tuple(f.name for f in fields(Roots))


ROWS_OF_OPTIONS = {
    ("DMS options", "path_format"): {"mode": "snapshots"},
    ("DMS options", "complete"): {"mode": "snapshots"},
}
"""Fields of the row that an option needs."""


def files_with(title: str, name: str, example: str) -> dict[str, str | bytes]:
    """A metadata folder in which one field has its example."""
    entry = f"{name}: {example}"
    settings, row = {"landing": "landing", "lake": "lake"}, {"table": "shop.t", "keys": "[id]"}
    if title == "Settings":
        settings[name] = example
    elif title == "A row":
        row[name] = example
        options = {"initial_load": "{verify_connection: GDDL_SOURCE_CRM}", "mode": "{path_format: yyyy}"}
        row |= {"options": options[name]} if name in options else {}
        if name == "shards":
            settings["sources"] = "{crm_eu: {landing: eu}, crm_us: {landing: us}}"
    elif title == "A source":
        beside = {"aws_conn_id": ", landing: 's3://crm/dms'", "role_arn": ", landing: 's3://crm/dms'"}
        beside["capture"] = ", connection: GDDL_SOURCE_CRM"
        beside["new_table_limits"] = ", new_tables: propose"
        beside["external_id"] = f", role_arn: 'arn:aws:iam::123456789012:role/x'{beside['role_arn']}"
        settings["sources"] = f"{{shop: {{{entry}{beside.get(name, '')}}}}}"
        row["source"] = "shop"
    elif title.partition(" ")[0] in NEEDED:
        runner, _, tier = title.partition(" ")
        own = {f: v for f, v in NEEDED[runner].items() if f != name or tier}
        own |= {"node_type": "n"} if runner == "databricks" and name not in ("node_type", "instance_pool_id") else {}
        inner = f"tiers: {{large: {{{entry}}}}}" if tier else entry
        settings["runners"] = f"{{{runner}: {{{', '.join([inner, *(f'{f}: {v}' for f, v in own.items())])}}}}}"
    elif title == "Tiers":
        settings["tiers"] = f"{{large: {{{entry}}}}}"
    elif title.endswith(" options"):
        row |= ROWS_OF_OPTIONS.get((title, name), {})
        beside = {"capture": ", verify_connection: GDDL_SOURCE_CRM", "complete": ", path_format: yyyy"}
        beside["topic"] = ", bootstrap_servers: 'kafka:9092'"
        entry += beside.get(name, "")
        row |= {"dialect": title.split(maxsplit=1)[0].lower(), "options": f"{{{entry}}}"}
    else:
        row["schema_evolution"] = f"{{{entry}}}"
    first = "".join(f"{key}: {value}\n" for key, value in settings.items())
    cells = ", ".join(f"{key}: {value}" for key, value in row.items())
    others = "".join(f"- {{table: {name}, keys: [id]}}\n" for name in ("shop.customers", "ops.heartbeat"))
    return {"gddl.yaml": first, "tables/t.yaml": f"tables:\n{others}- {{{cells}}}\n"}


EXAMPLES = [(title, bare(row[0]), bare(row[3])) for title in TABLES for row in documented_fields(title)]


@pytest.mark.parametrize(("title", "name", "example"), EXAMPLES)
def test_examples_are_taken(title: str, name: str, example: str, tmp_path: Path) -> None:
    files = files_with(title, name, example)
    catalog = loaded(tmp_path, files)
    assert [str(problem) for problem in catalog.problems] == []
    assert len(catalog.tables) == 3


@pytest.mark.parametrize("name", sorted(MAPPINGS))
def test_a_text_instead_of_a_mapping_is_answered_with_the_documented_example(name: str, tmp_path: Path) -> None:
    (documented,) = {bare(row[3]) for row in documented_fields("A row") if bare(row[0]) == name}
    table = f"tables:\n- {{table: shop.orders, keys: [id], {name}: text}}\n"
    (problem,) = loaded(tmp_path, {"gddl.yaml": "landing: /landing\nlake: /lake\n", "tables/t.yaml": table}).problems
    assert (problem.code, problem.remedy) == ("FIELD_TYPE", f"write e.g. {name}: {documented}")


def test_the_tiers_differ_as_documented() -> None:
    found = {
        bare(row[0]): files.read_yaml(bare(row[1])) for row in rows(section("metadata.md", "Tiers")) if len(row) == 2
    }
    usual = plain(TierSpec())
    expected = {name: {k: v for k, v in plain(tier).items() if v != usual[k]} for name, tier in DEFAULT_TIERS.items()}
    assert found == expected


def test_every_field_is_read() -> None:
    """A field of a tier that nothing reads would be a promise that nobody keeps."""
    paths = [path for path in SOURCES if not {"contract", "catalog", "simulate"} & set(path.parts)]
    paths += [path for path in SOURCES if path.parts[-2:] == ("contract", "spec.py")]  # a property reads another field
    read = {node.attr for tree in trees(paths) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {bare(row[0]) for title in ("Tiers", *RUNNERS) for row in documented_fields(title)} - read == set()


def test_blocks_of_the_page_load(tmp_path: Path) -> None:
    blocks = re.findall(r"```(yaml|csv)\n(.*?)```", page("metadata.md"), re.DOTALL)
    names = ["tables/shop.yaml", "keys/found.yaml", "tables/more.csv"]
    files = dict(zip(names, (text for _, text in blocks), strict=True))
    catalog = loaded(tmp_path, {**files, "tables/invoices.yaml": "source: shop\ntables: [{table: shop.invoices}]\n"})
    assert [str(problem) for problem in catalog.problems] == []
    found = {spec.table: spec for spec in catalog.tables}
    assert set(found) == {"shop.customers", "shop.orders", "shop.items", "shop.invoices"}
    assert (found["shop.items"].keys, dict(found["shop.items"].mask)) == (("order_id", "line"), {"note": "null"})
    assert (found["shop.orders"].freshness, found["shop.orders"].source) == ("30m", "shop")


def test_variables_are_documented() -> None:
    nodes = (node for tree in trees(SOURCES) for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = {node.value for node in nodes if isinstance(node.value, str)}
    used = {text for text in texts if re.fullmatch(r"GDDL_[A-Z_]+[A-Z]", text)}
    named = {name.split("__")[0] for name in re.findall(r"GDDL_[A-Z_]+", page("metadata.md"))}
    assert used >= {"GDDL_METADATA"}
    assert used - named == set()
    sections = {f"GDDL_{name.upper()}" for name in SETTINGS}
    assert {name for name in named - used if not name.startswith(LENT_PREFIX)} <= sections


# Commands and results


def test_every_command_and_option_is_documented() -> None:
    text = page("cli.md")
    known = {re.sub(" [A-Z]+$", "", bare(row[0])): row for row in rows(text) if row[0].startswith("`gddl ")}
    found = dict(commands(typer.main.get_command(app)))
    assert set(known) == set(found)
    shared = {"--metadata", "--table", "--json"}
    for name, options in found.items():
        own = options if name == "gddl simulate" else options - shared
        place = section("cli.md", "Simulate") if name == "gddl simulate" else known[name][2]
        assert {o for o in own if o not in place} == set(), name
        if name != "gddl simulate":
            assert set(re.findall(r"--[a-z-]+", place)) == own, name
    everywhere = set.union(*found.values()) | {
        "--debug",
        "--version",
        "--install-completion",
        "--help",
        "--spec",
        "--results",
        "--progress",
    }
    everywhere |= {"--verbose", "--discovery", "--stream-option", "--check"}
    assert set(re.findall(r"--[a-z][a-z-]+", text)) - everywhere == set()


def test_pages_name_no_option_that_a_command_lacks() -> None:
    """Whoever is called at night types what the runbook says."""
    known = dict(commands(typer.main.get_command(app)))
    names = "|".join(sorted((name.removeprefix("gddl ") for name in known), key=len, reverse=True))
    said = re.compile(rf"(?<![\w/-])gddl ({names})(?![\w-])((?: [^`#|&;()\n]*)?)")
    found = [
        (path.name, f"gddl {name}", option)
        for path in PAGES
        for name, rest in said.findall(path.read_text(encoding="utf-8"))
        for option in re.findall(r"(?<!\S)--[a-z-]+", rest)
    ]
    assert len(found) > 50
    assert [one for one in found if one[2] not in known[one[1]] | {"--help", "--debug"}] == []


def test_every_key_of_a_result_is_documented() -> None:
    found = [bare(name) for row in rows(section("cli.md", "JSON of a run")) for name in row[0].split(", ")]
    assert sorted(found) == sorted(f.name for f in fields(JobResult))
    assert all(f"`{f.name}`" in section("cli.md", "JSON of a run") for f in fields(MainCounts))


def test_the_struct_and_the_errors_table_are_documented() -> None:
    found = [bare(row[0]) for row in rows(section("semantics.md", "1. A change"))]
    table_schema = TableSchema(spec=TableSpec(table="s.t", keys=("id",)), keys=("id",), data=())
    assert found == [*(name for name, _ in table_schema.gddl_fields), "deleted", *(name for name, _ in EVENT_FIELDS)]
    tree = ast.parse((ROOT / "spark_jobs/rules/errors_table.py").read_text(encoding="utf-8"))
    columns = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.AnnAssign) and n.value)
    named = [bare(name) for row in rows(section("semantics.md", "12. Quarantine")) for name in row[0].split(", ")]
    assert sorted(named) == sorted(columns)


# Links and references


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_file_names_resolve(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target, anchor in LINK.findall(text):
        there = path.parent / target if target else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"
    assert [name for name in NAMED_FILE.findall(text) if not (ROOT / name).exists()] == []


def test_references_from_the_code_resolve() -> None:
    sections = {
        name: set(re.findall(r"^## (\d+)\. ", page(f"{name}.md"), re.MULTILINE)) for name in ("semantics", "design")
    }
    rules = set(re.findall(r"^(\d+)\. \*\*", section("semantics.md", "Rules of correctness"), re.MULTILINE))
    met = 0
    for path in (*SOURCES, *TESTS):
        for page_name, kind, numbers in REFERENCE.findall(path.read_text(encoding="utf-8")):
            known = rules if kind == "rule" else sections[page_name]
            assert set(re.findall(r"\d+", numbers)) <= known, f"{path}: {page_name} {kind} {numbers}"
            met += 1
    assert met > 15, "the pattern finds no references any more"


def test_the_design_shows_every_package() -> None:
    text = section("design.md", "3. Layout and direction of imports")
    packages = [
        p.parent for p in SOURCES if p.name == "__init__.py" and p.parent.parent.name in ("airflow_gddl", "spark_jobs")
    ]
    assert [p.name for p in packages if f"  {p.name}/" not in text] == []
    drawn = [name for line in text.splitlines() for name in re.findall(r"(?:^|  )([a-z_]+)/", line)]
    known = {path.name for path in ROOT.iterdir() if path.is_dir()}
    known |= {path.name for name in ("airflow_gddl", "spark_jobs") for path in (ROOT / name).iterdir() if path.is_dir()}
    assert set(drawn) - known == set(), "drawn, and not there"
    assert len(page("design.md").split()) <= 2_000


DECISIONS = sorted(set((DOCS / "decisions").glob("*.md")) - {DOCS / "decisions" / "index.md"})
PARTS = [["Why"], ["Not"], ["Why", "Not"]]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: str(path.name))
def test_each_decision_says_why_or_what_not_to_try(path: Path) -> None:
    title, *entries = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert re.match(r"# [A-Z].+\n[^\n]", title), "a title, and what the page is about"
    headings = [entry.partition("\n")[0] for entry in entries]
    assert headings
    assert len({heading.lower() for heading in headings}) == len(headings), "two entries share an anchor"
    for heading, entry in zip(headings, entries, strict=True):
        # GitHub and mkdocs make the same anchor of such a heading.
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]*(?: [A-Za-z0-9]+)+", heading), heading
        assert re.findall(r"^\*\*([^*\n]+):\*\* \S", entry, re.MULTILINE) in PARTS, heading
        assert re.findall(r"^#+ .+$", entry, re.MULTILINE) == [], heading
        prose = re.sub(r"^\|.*$", "", entry, flags=re.MULTILINE)
        assert len(prose.split()) <= 120, f"{heading}: too long to be read"


def test_decisions_are_listed() -> None:
    """Pages by topic are all there is, and the index names each."""
    listed = re.findall(r"^- \[.+\]\((.+)\): ", page("decisions/index.md"), re.MULTILINE)
    assert sorted(listed) == [path.name for path in DECISIONS]
    assert {path.parent.name for path in (DOCS / "decisions").rglob("*") if path.is_file()} == {"decisions"}


def test_a_page_begins_with_what_a_reader_can_do_after_it() -> None:
    guides = [path for path in DOCS.rglob("*.md") if path != DOCS / "index.md" and path.parent.name != "decisions"]
    first = {path: next(line for line in path.read_text().splitlines()[1:] if line) for path in guides}
    assert len(first) > 30
    begins = ("After this page ", "With this page ")
    assert [str(path) for path, line in first.items() if not line.startswith(begins)] == []
