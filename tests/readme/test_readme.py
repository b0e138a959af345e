"""A newcomer types what the README says, in its order, in an empty folder; all of it works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (?P<what>run|file: (?P<name>\S+)) -->\n```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)\)")


@dataclass(frozen=True)
class Block:
    """A marked block: a file to write (its name), or commands to run (null)."""

    name: str | None
    language: str
    text: str


def blocks() -> list[Block]:
    text = (ROOT / "README.md").read_text()
    found = [Block(match["name"], match["language"], match["text"]) for match in BLOCK.finditer(text)]
    assert len(found) == text.count("<!-- "), "a mark that is not just above its block"
    return found


def test_links_lead_somewhere() -> None:
    targets = LINK.findall((ROOT / "README.md").read_text())
    assert "docs/semantics.md" in targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_command_is_shown_at_work() -> None:
    shown = "\n".join(block.text for block in blocks() if block.language == "sh")
    commands = ("onboard", "inspect", "validate", "run", "status", "verify", "errors list", "errors replay", "simulate")
    for command in (*commands, "demo"):
        assert f"gddl {command}" in shown


@pytest.mark.timeout(1500)
def test_the_commands_work(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GDDL_")}
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    for block in blocks():
        if block.name is not None:
            path = tmp_path / block.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            continue
        programs = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
        command = [*programs[block.language], block.text]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    assert {path.name for path in (tmp_path / "lake" / "shop").iterdir()} >= {"airlines", "planes", "planes__history"}
