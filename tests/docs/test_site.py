"""The documentation site: warnings are errors, nothing is loaded from elsewhere, and it says what the code says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields as fields_of
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.structure.files import File, Files

from airflow_gddl.cli.commands import COMMANDS, EVERYDAY
from airflow_gddl.contract.codes import REGISTER
from airflow_gddl.contract.extensions import DebeziumOptions, DmsOptions
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.metadata.validation import TABLE
from devtools.website import codes, fields, hooks, rules
from devtools.website.github import for_site
from tests.unit.pages import DOCS, ROOT, rows

# It is built once, whatever process its tests come to.
pytestmark = [pytest.mark.wide, pytest.mark.xdist_group("site")]
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Elements(HTMLParser):
    """Elements of a page with their attributes, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def plain(self, tag: str) -> int:
        """How many of them the page itself has: those of the theme have a class."""
        return sum(one == tag and "class" not in attributes for one, attributes in self.found)


def pages(site: Path) -> Iterator[tuple[Path, Elements]]:
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html":
            yield path, Elements(path)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path, page in pages(site):
        loaded = [attributes.get(LOADING[tag]) for tag, attributes in page.found if tag in LOADING]
        assert loaded, path
        assert [url for url in loaded if re.match(r"(https?:)?//", url or "")] == [], path
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_page_can_be_reached(site: Path) -> None:
    linked = {attributes.get("href") or "" for tag, attributes in Elements(site / "index.html").found if tag == "a"}
    made = {str(path.relative_to(site)) for path, _ in pages(site)} - {"index.html"}
    assert made - {link.partition("#")[0] for link in linked} == set()
    assert {"rules.html", "fields.html", "changelog.html", "benchmarks.html"} <= made


def test_a_page_that_nobody_named_is_not_lost() -> None:
    config = SimpleNamespace(nav=["cli.md", {"Project": ["design.md"]}])
    names = ("cli.md", "design.md", "new.md", "decisions/size.md")
    hooks._complete(config, Files([File(name, "docs", "site", use_directory_urls=False) for name in names]))
    project = {"Project": ["design.md", {"Decisions": ["decisions/size.md"]}]}
    assert config.nav == ["cli.md", project, {"More": ["new.md"]}]


def test_lists_tables_and_blocks_come_out_as_such(site: Path) -> None:
    """What GitHub takes for a list, Python-Markdown takes for text unless it is told."""
    for path, page in pages(site):
        assert not re.search(r"^\s*\|.*\|\s*$", page.text, re.MULTILINE), path
        assert "```" not in page.text, path
    databricks = Elements(site / "platforms" / "databricks.html")
    source = (DOCS / "platforms" / "databricks.md").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", databricks.text)
    assert databricks.plain("ol") == 1
    assert source.count("\n5. ") == 1
    assert "5. Make" not in text
    assert "databricks_conn_id: databricks_prod" in databricks.text


def test_codes_lead_to_their_rows(site: Path) -> None:
    ids = {attributes.get("id") for tag, attributes in Elements(site / "codes.html").found if tag == "a"}
    assert {code.lower() for code in REGISTER} <= ids
    runbook = [attributes.get("href") for tag, attributes in Elements(site / "on-call.html").found if tag == "a"]
    assert "codes.html#table_busy" in runbook


def test_codes_are_found_by_the_search(site: Path) -> None:
    documents = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {one["title"]: one for one in documents if one["location"].startswith("codes.html#")}
    assert REGISTER.keys() <= set(found)
    busy = found["TABLE_BUSY"]
    assert (busy["location"], busy["text"].partition(";")[0]) == ("codes.html#table_busy", "retriable")
    # A result is grouped with those of its page, which the search has to know before.
    locations = [one["location"] for one in documents]
    assert locations.index("codes.html") < locations.index("codes.html#table_busy")


def test_the_overview_names_ten_commands_and_fields_that_exist() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    named = [row[0].strip("`").removeprefix("gddl ") for row in rows(text.partition("## Ten")[2].partition("\n## ")[0])]
    everyday = [name for name, command in COMMANDS.items() if command.panel == EVERYDAY]
    assert sorted(named) == sorted(everyday)
    assert len(named) == 10
    fields = re.findall(r"`(\w+)`", text.partition("| fields of a row |")[2].partition("\n\n")[0])
    assert 20 < len(fields) <= 30
    assert set(fields) <= {field.name for field in fields_of(TableSpec)}
    for name in set(COMMANDS) - set(named):
        assert f"`{name}`" in text or f"gddl {name}`" in text, name


def test_the_first_page_shows_its_commands(site: Path) -> None:
    """They are run by tests/readme."""
    text = Elements(site / "start.html").text
    assert "gddl simulate nycflights13" in text
    assert "<!-- " not in (site / "start.html").read_text(encoding="utf-8")


def test_every_field_of_the_contract_is_listed() -> None:
    sections = fields.page(ROOT).split("\n## ")
    dms, debezium = (f"`options` of a row, dialect `{name}`" for name in ("dms", "debezium"))
    for title, cls in (("A row", TableSpec), (dms, DmsOptions), (debezium, DebeziumOptions), ("A tier", TierSpec)):
        (found,) = [section for section in sections if section.startswith(title)]
        listed = [row[0].strip("`") for row in rows(found)]
        resolved = TABLE.resolved if cls is TableSpec else ()
        assert listed == [field.name for field in fields_of(cls) if field.name not in resolved], title
    assert '| `tie_break` | `delete_wins` `last_arrival` | `"delete_wins"` |' in fields.page(ROOT)


def test_every_rule_has_its_proofs() -> None:
    page = rules.page(ROOT)
    found = dict(re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(found) == [str(number) for number in range(1, 15)]
    assert [number for number, text in found.items() if not rows(text)] == []
    names = {path.parent.name for path in (ROOT / "tests" / "scenarios").glob("*/scenario.yaml")}
    assert {name for name in names if f"`{name}`" not in page} == set()
    assert [path for paths in rules.BEYOND.values() for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Text:\n- a\n- b", "Text:\n\n- a\n- b"),
        ("Text\n| a |\n|---|", "Text\n\n| a |\n|---|"),
        ("- a\n  more\n- b", "- a\n    more\n- b"),
        ("1. a\n   ```sh\n   x\n   ```\n2. b", "1. a\n\n    ```sh\n    x\n    ```\n\n2. b"),
        ("- a\n  - b\n- c", "- a\n    - b\n- c"),
        ("```\nText:\n- a\n```", "```\nText:\n- a\n```"),
        ("[x](../metadata) [y](cli.md#a)", "x [y](cli.md#a)"),
        ("[docs/cli.md](cli.md)", "[cli.md](cli.md)"),
        ("[r](semantics.md#rules-of-correctness)", "[r](rules.md)"),
        ("use `--wait` or\n```sh\n`--wait`\n```", "use `--wait`{ .option } or\n\n```sh\n`--wait`\n```"),
        ("`--set NAME=1` `gddl run --wait 6`", "`--set NAME=1`{ .option } `gddl run --wait 6`"),
        ("<!-- run -->\n```sh\nx\n```", "```sh\nx\n```"),
    ],
)
def test_pages_written_for_github(written: str, expected: str) -> None:
    assert for_site(written, "metadata.md", {"cli.md", "design.md"}) == expected


def test_codes_break_at_their_words() -> None:
    html = "<td><code>A_BC_D</code> <code>a_b</code> A_B</td>"
    assert codes.breakable(html) == "<td><code>A_<wbr>BC_<wbr>D</code> <code>a_b</code> A_B</td>"


def test_codes_are_linked_but_where_they_must_not_be() -> None:
    page = "# `A_B`\n`A_B` and `C_D`, [`A_B`](x.md)\n```\n`A_B`\n```"
    expected = "# `A_B`\n[`A_B`](../codes.md#a_b) and `C_D`, [`A_B`](x.md)\n```\n`A_B`\n```"
    assert codes.linked(page, {"A_B"}, "platforms/p.md") == expected


def test_the_search_puts_tasks_before_decisions(site: Path) -> None:
    documents = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    rank = {one["location"]: one.get("boost", 1) for one in documents if "#" not in one["location"]}
    decisions = [found for place, found in rank.items() if place.startswith("decisions/")]
    assert decisions
    assert max(decisions) < rank["monitoring.html"] < rank["tasks/deploy.html"]


@pytest.mark.parametrize(("word", "page"), [
    ("monitoring", "monitoring.html"), ("uninstall", "tasks/remove.html"), ("cost", "costs.html"),
    ("terraform", "tasks/deploy.html"), ("Prometheus", "monitoring.html"), ("dbt", "consumers.html"),
])  # fmt: skip
def test_words_that_users_search_for_find_a_page(word: str, page: str, site: Path) -> None:
    documents = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    texts = [f"{one['title']} {one['text']}" for one in documents if one["location"].partition("#")[0] == page]
    assert re.search(rf"\b{word}", " ".join(texts), re.IGNORECASE)


def test_pages_lead_on_and_have_tabs(site: Path) -> None:
    page = Elements(site / "monitoring.html")
    links = {attributes.get("aria-label") for tag, attributes in page.found if tag == "a"}
    assert {"Previous: On call", "Next: Remove a table, leave, or uninstall"} <= links
    tabs = [attributes for _, attributes in page.found if "md-tabs__link" in (attributes.get("class") or "")]
    assert len(tabs) > 5
    assert re.search(r"airflow-gddl \d+\.\d+", page.text)
