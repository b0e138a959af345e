"""A newcomer types what the README says, in its order, in an empty folder; all of it works."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.readme.walk import ROOT, Block, Walk, blocks

LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)\)")


def marked() -> list[Block]:
    return blocks((ROOT / "README.md").read_text())


def test_links_lead_somewhere() -> None:
    targets = LINK.findall((ROOT / "README.md").read_text())
    assert "docs/semantics.md" in targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_command_is_shown_at_work() -> None:
    shown = "\n".join(block.text for block in marked() if block.language == "sh")
    commands = ("onboard", "inspect", "validate", "run", "status", "verify", "errors list", "errors replay", "simulate")
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
