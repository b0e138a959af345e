"""A newcomer types what the first page says, in its order, in an empty folder; all of it works."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from airflow_gddl.cli.init import DEMO_FILES as PROJECT_OF_DEMO
from tests.readme.walk import ROOT, START, Block, Walk, blocks

LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)\)")


def marked() -> list[Block]:
    return blocks(START.read_text())


def test_links_lead_somewhere() -> None:
    targets = LINK.findall((ROOT / "README.md").read_text())
    assert "docs/semantics.md" in targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_readme_is_short_and_begins_with_a_command_that_ci_runs() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 600
    first = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert first is not None
    target = first[1].split()[-1]
    assert first[1].splitlines()[-1] == f"make {target}"
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert re.search(rf"\b{target}\b", (ROOT / ".ci" / "run").read_text())


def test_the_row_of_the_readme_is_that_of_the_demo() -> None:
    """Whose grid the picture shows."""
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found = yaml.safe_load(shown)["tables"]
    demo = yaml.safe_load(PROJECT_OF_DEMO["metadata/tables/nyc.yaml"])["tables"]
    keys = yaml.safe_load(PROJECT_OF_DEMO["metadata/keys/nyc.yaml"])["keys"]
    assert [{k: v for k, v in row.items() if k not in ("keys", "depends_on")} for row in found] == [
        {k: v for k, v in row.items() if k != "depends_on"} for row in demo
    ]
    assert {row["table"]: row["keys"] for row in found} == keys


def test_what_proves_a_feature_is_there() -> None:
    table = (ROOT / "README.md").read_text().partition("| | proven by |")[2].partition("\n\n")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) > 5
    assert [row for row in rows if not LINK.search(row)] == []


def test_every_command_is_shown_at_work() -> None:
    shown = "\n".join(block.text for block in marked() if block.language == "sh")
    commands = ("onboard", "validate", "run", "status", "verify", "errors list", "errors replay", "simulate")
    for command in (*commands, "demo"):
        assert f"gddl {command}" in shown


@pytest.mark.deep
@pytest.mark.timeout(1500)
def test_the_commands_work(tmp_path: Path) -> None:
    """With the packages of developers; `make newcomer`, with which CI begins, has those of users."""
    walk = Walk(tmp_path, Path(sys.executable).parent)
    for block in marked():
        list(walk.take(block))
    assert len(walk.steps) > 20
    assert {path.name for path in (tmp_path / "lake" / "shop").iterdir()} >= {"airlines", "planes", "planes__history"}


def test_a_page_that_shows_what_is_not_printed_is_wrong(tmp_path: Path) -> None:
    walk = Walk(tmp_path, Path(sys.executable).parent)
    page = "<!-- run -->\n```sh\necho 'a   table'  # a comment\n```\n<!-- shown -->\n```text\n{shown}\n```\n"
    for shown in ("a table", "a …", "… table"):
        assert len([step for block in blocks(page.format(shown=shown)) for step in walk.take(block)]) == 1
    with pytest.raises(AssertionError, match="another table"):
        [step for block in blocks(page.format(shown="another table")) for step in walk.take(block)]
    with pytest.raises(ValueError, match="1 marks, 0 of them"):
        blocks("<!-- run -->\n\n```sh\necho\n```\n")
