"""Pages that say something about the same code, state or folder say the same, and what the code does."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest

from airflow_gddl.contract.codes import ENDINGS, SOURCE_STOPPED
from airflow_gddl.runtime.state.table_status import STATES
from tests.unit.pages import ROOT, bare, page, rows, section

CODE = re.compile(r"`([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)`")
LINK = re.compile(r"\]\([^)#]*(#[^)]*)?\)")
OUTCOMES = "15. What a table shows"
WRITES_THERE = {
    "rooms/actions/initial_load.py": "`initial_load` of a row",
    "rooms/sources/capture/log.py": "`capture` of a source",
    "rooms/sources/kafka/topic.py": "`topic` of a row's `options`",
    "batch/resynced_files.py": "`gddl resync` of some rows",
    "rooms/actions/maintain.py": "`landing_retention` of a row",
}
"""Modules of jobs that write into landing folders, and the beginning of the row that says so on the pages."""
IN_THE_LAKE = {
    "rooms/actions/erase.py": "deletes its own files of captured changes",
    "rooms/actions/reload_run.py": "removes tables of a reload that was not finished",
    "ledger/adoption.py": "the ledger of an adopted table",
    "ledger/erasures.py": "remembered keys",
    "ledger/ledger.py": "the ledger",
    "ledger/targets.py": "documents that say where a table was loaded",
    "rooms/sources/snapshots/capture.py": "change files of snapshots, whose folder is in the lake (`Layout.landing`)",
}
"""Modules that name landing folders and write elsewhere."""


def lines_of(name: str, begin: str) -> list[str]:
    """Rows of the one table of a page whose heading begins so, links without their pages."""
    text = page(name)
    assert text.count(f"\n{begin}") == 1, f"{name}: {begin}"
    found = text.partition(f"\n{begin}")[2].partition("\n\n")[0].splitlines()
    return [LINK.sub(r"](\1)", line) for line in found if line.startswith("| ")]


def outcomes() -> Iterator[list[str]]:
    """Cells of each row: what, codes, result, state."""
    for line in section("semantics.md", OUTCOMES).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "what":
            yield cells


def kinds() -> dict[str, set[str]]:
    return {bare(row[0]): set(row[1].split(", ")) for row in rows(page("codes.md"))}


def test_what_a_table_shows_fits_the_kind_of_its_code() -> None:
    """A fatal code fails the run, a warning does not; whoever reads one page expects what the other says."""
    known, met = kinds(), 0
    for what, codes, result, state in outcomes():
        for code in CODE.findall(codes):
            failing = bool(known[code] & {"fatal", "retriable", "retried"}) and "warning" not in known[code]
            assert ("failed" in result) == failing, f"{what}: {code} is {known[code]}, {result}"
            assert state.startswith("`failed`") == (failing and "verification" not in result), f"{what}: {code}"
            met += 1
    assert met > 50


def test_every_code_of_attention_is_among_what_a_table_shows() -> None:
    listed = {code for _, codes, _, state in outcomes() if "`attention`" in state for code in CODE.findall(codes)}
    listed |= {code for _, _, _, state in outcomes() for code in CODE.findall(state)}
    shown = ENDINGS.keys() - {SOURCE_STOPPED}
    assert (shown - listed, listed - shown) == (set(), set())


def test_a_stopped_source_is_late_on_every_page() -> None:
    (state,) = [state for _, codes, _, state in outcomes() if SOURCE_STOPPED in codes]
    assert state.startswith("`late`")
    assert SOURCE_STOPPED in next(line for line in lines_of("operate.md", "| state | meaning") if "`late`" in line)


def test_the_page_of_states_has_every_state_in_its_order() -> None:
    assert [bare(row[0]) for row in rows(section("operate.md", "States").partition("\n### ")[0])] == list(STATES)


def test_modules_that_write_into_landing_folders_are_those_of_the_pages() -> None:
    writes = re.compile(r"storage\.(?:write|create|create_once|copy|swap|swap_once|delete)\(")
    found = set()
    for path in sorted((ROOT / "spark_jobs").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"landing", text, re.IGNORECASE) and writes.search(text):
            found.add(path.relative_to(ROOT / "spark_jobs").as_posix())
    assert found == {*WRITES_THERE, *IN_THE_LAKE}
    said = [line.removeprefix("| ") for line in lines_of("metadata.md", "| writes into the landing folder |")]
    assert [one for one in WRITES_THERE.values() if not any(line.startswith(one) for line in said)] == []
    assert len(said) == len(WRITES_THERE)


@pytest.mark.parametrize("name", ["glue.md", "emr-serverless.md", "databricks.md"])
def test_rights_of_a_platform_link_to_what_writes_into_landing_folders(name: str) -> None:
    (line,) = [line for line in page(f"platforms/{name}").splitlines() if "read `landing`" in line]
    assert "metadata.md#on-s3" in line


def test_service_levels_are_no_limits_of_lag() -> None:
    """Lag grows in a quiet source, and is not compared with `freshness` (operate.md)."""
    text = section("monitoring.md", "Metrics") + section("monitoring.md", "Service levels")
    asked = re.findall(r"^ *(?:expr: (.+)|([\w -]+\(.+\)))$", text, re.MULTILINE)
    expressions = [rule or query for rule, query in asked]
    assert len(expressions) == 5
    assert [one for one in expressions if "lag_seconds" in one] == []
    assert len([one for one in expressions if "airflow_gddl_late" in one]) == 2


EXTRAS = {"capture:": "capture", "initial_load:": "source", "topic:": "kafka", "iceberg: true": "iceberg"}
"""Setting of a metadata file to the extra that it needs."""


def packages(extra: str) -> set[str]:
    """An extra with those that it includes."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    inner = re.findall(r"airflow-gddl\[([^\]]+)\]", " ".join(known[extra]))
    return {extra}.union(*(packages(name) for names in inner for name in names.split(",")))


@pytest.mark.parametrize("name", ["start.md", "tutorial.md"])
def test_the_first_installation_of_a_page_has_what_its_metadata_needs(name: str) -> None:
    text = page(name)
    first = re.search(r"pip install '(?:\.|airflow-gddl)\[([^\]]+)\]", text)
    assert first
    installed = set().union(*(packages(extra) for extra in first[1].split(",")))
    files = "\n".join(re.findall(r"<!-- file: \S+ -->\n```yaml\n(.*?)```", text, re.DOTALL))
    assert files
    assert {extra for setting, extra in EXTRAS.items() if setting in files} - installed == set()
