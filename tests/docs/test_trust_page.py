"""`docs/trust.md`: its figures are what the tree has, its commands do what it says."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from packaging.version import Version

from airflow_gddl.metadata.loading import load
from tests.harness.landing import write
from tests.one_task.commands import gddl
from tests.readers import reader_versions
from tests.unit.pages import ROOT, page, section

PAGE = page("trust.md")
NAMED = re.compile(r"`((?:spark_jobs|tests)/[^`]+)`")


def table(title: str) -> list[list[str]]:
    """Cells of the rows below a heading, without the head."""
    lines = [line for line in section("trust.md", title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_lines_of_code_are_those_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    code_of = runpy.run_path(str(ROOT / "benchmarks/modules.py"))["code_of"]
    rows = table("Code that can hurt a table")
    assert len(rows) == 8
    for what, modules, lines in rows:
        files = {path for pattern in NAMED.findall(modules) for path in ROOT.glob(pattern)}
        counted = sum(code_of(path.read_text()) for path in files)
        assert number(lines) == pytest.approx(counted, rel=0.05), f"{what}: {counted:,}"


def test_the_page_names_all_code_of_tables() -> None:
    named = {
        path for row in table("Code that can hurt a table") for p in NAMED.findall(row[1]) for path in ROOT.glob(p)
    }
    assert {path for path in (ROOT / "spark_jobs/tables").glob("*.py") if path.read_text()} <= named


@pytest.mark.deep
def test_suites_exist_and_have_as_many_cases() -> None:
    rows = table("How it was checked")
    suites = [suite for row in rows for suite in NAMED.findall(row[1])]
    assert len(suites) == len(set(suites)) > 15
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "--collect-only",
        "-qq",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
        *suites,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    counts = Counter[str]()
    for line in done.stdout.splitlines():
        file, _, cases = line.partition(": ")
        counts.update({suite: int(cases) for suite in suites if cases.isdigit() and Path(file).is_relative_to(suite)})
    for question, named, cases in rows:
        found = sum(counts[suite] for suite in NAMED.findall(named))
        assert found * 0.9 <= number(cases) <= found, f"{question} {found:,} cases"


def test_each_mutant_of_the_page_is_counted_once() -> None:
    text = (ROOT / "tests/mutation/FIRST_200.md").read_text()
    drawing = r"first (\d+) mutants of seed .*?: (\d+) were killed, (\d+) survived and (\d+) were not called"
    judged = re.search(drawing, text, re.DOTALL)
    assert judged
    drawn, killed, survived, not_called = map(int, judged.groups())
    assert killed + survived + not_called == drawn
    rows = re.findall(r"^- (\d+): (.*)$", text, re.MULTILINE)
    assert sum(int(count) for count, _ in rows) == survived + not_called
    for count, what in rows:
        named = [int(one) for one in re.findall(r"\b\d+\b", what)]
        assert len(named) == len(set(named)), what
        assert len(named) in (0, int(count)), what
        assert all(one < drawn for one in named)


def test_readers_installed_are_new_enough() -> None:
    lines = [line for line in section("consumers.md", "Versions of readers").splitlines() if line.startswith("|")]
    oldest = {name.strip(): cells for name, *cells in (line.strip("|").split("|") for line in lines[2:])}
    for name in ("deltalake", "polars", "duckdb"):
        told = re.search(rf"{name} `([\d.]+)`", " ".join(sum(oldest.values(), list(oldest))))
        assert told, name
        assert Version(version(name)) >= Version(told[1])
    assert "not tested" in " ".join(oldest["Trino"])


def test_filters_of_the_readers_are_as_many_as_the_page_says() -> None:
    assert (
        f"asked {len(reader_versions.filters())} filters on {['zero', 'eight'][len(reader_versions.KINDS) == 8]}"
        in PAGE
    )


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "metadata/tables").mkdir(parents=True)
    settings = "landing: ../landing\nlake: ../lake\n"
    (tmp_path / "metadata/gddl.yaml").write_text(settings)
    (tmp_path / "metadata/tables/shop.yaml").write_text(
        "tables: [{table: shop.orders, keys: [id], sequence_by: [seq]}]\n"
    )
    write(tmp_path / "landing/shop/orders", "LOAD00000001.parquet", pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    changes = pa.table({"Op": ["U", "D"], "seq": [1, 2], "id": [1, 2], "v": ["new", "b"]})
    write(tmp_path / "landing/shop/orders", "20240101-000000001.parquet", changes)
    return tmp_path


def words(command: str) -> list[str]:
    """Words of a command as the page has it."""
    (found,) = re.findall(rf"^gddl ({command}.*)$", PAGE, re.MULTILINE)
    return str(found).split()


def rows_of(shop: Path) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in pa.table(DeltaTable(shop / "lake/shop/orders").scan()).to_pylist())


def test_a_harmed_replica_is_found_and_made_again(shop: Path) -> None:
    gddl(shop, "run")
    right = rows_of(shop)
    assert right == [(1, "new"), (3, "c")]
    DeltaTable(shop / "lake/shop/orders").delete("id = 3")
    (found,), _ = gddl(shop, *words("verify"), status=1)
    assert found["error"]["code"] == "VERIFY_DIFFERENT"
    gddl(shop, *words("rebuild"))
    assert rows_of(shop) == right
    gddl(shop, *words("verify"))


def test_restored_by_delta_is_said_by_the_next_run(shop: Path) -> None:
    gddl(shop, "run")
    replica = DeltaTable(shop / "lake/shop/orders")
    replica.restore(replica.version() - 1)
    write(
        shop / "landing/shop/orders",
        "20240101-000000002.parquet",
        pa.table({"Op": ["I"], "seq": [3], "id": [9], "v": ["z"]}),
    )
    (result,), _ = gddl(shop, "run")
    assert "FOREIGN_COMMIT" in {warning["code"] for warning in result["warnings"]}


def test_a_stopped_table_stays_as_it_is(shop: Path) -> None:
    gddl(shop, "run")
    row = shop / "metadata/tables/shop.yaml"
    row.write_text(row.read_text().replace("{table:", "{enabled: false, table:"))
    write(
        shop / "landing/shop/orders",
        "20240101-000000002.parquet",
        pa.table({"Op": ["D"], "seq": [3], "id": [3], "v": ["c"]}),
    )
    _, said = gddl(shop, "run", status=2)
    assert "NO_TABLES" in said
    assert rows_of(shop) == [(1, "new"), (3, "c")]


def test_a_trial_writes_below_its_own_lake_alone(shop: Path) -> None:
    gddl(shop, "run")
    before = {path: path.read_bytes() for path in shop.rglob("*") if path.is_file() and "metadata" not in path.parts}
    settings = shop / "metadata/gddl.yaml"
    settings.write_text(settings.read_text().replace("../lake", "../trial"))
    gddl(shop, "run")
    assert rows_of(shop) == sorted(
        (r["id"], r["v"]) for r in pa.table(DeltaTable(shop / "trial/shop/orders").scan()).to_pylist()
    )
    assert {path: path.read_bytes() for path in before} == before


def test_one_line_lets_merge_commit_all_tables(shop: Path) -> None:
    (line,) = re.findall(r"```yaml\n# metadata/gddl.yaml\n(defaults: .*?)```", PAGE, re.DOTALL)
    settings = shop / "metadata/gddl.yaml"
    settings.write_text(settings.read_text() + line)
    gddl(shop, "validate")
    found = load(shop / "metadata", {})
    assert found.tables
    for spec in found.tables:
        tier = found.tiers[spec.size].for_row(spec)
        assert (tier.commit, tier.in_one_task) == ("merge", False)


def test_eject_writes_its_folder(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    gddl(shop, *words("eject"))
    assert sorted(path.name for path in (shop / "dags/orders").iterdir()) == [
        "README.md",
        "dag.py",
        "job.py",
        "known.json",
    ]
