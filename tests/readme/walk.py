"""Marked blocks of pages, run one after the other as a newcomer types them, in an empty folder.

A mark is an HTML comment on the line above a fenced block: `file: NAME` writes the block to a file, `run` runs it, and
`shown` lists lines that the run above has to print, in a terminal of 80 columns; in them `…` stands for anything.
`install` is for `newcomer.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
START = ROOT / "docs" / "start.md"
"""The first page whose commands are typed; the README's one command is CI's first step."""
WITHOUT_SPARK = ("GDDL_SETTLE", "GDDL_WITHOUT_SPARK")
"""Variables as conftest sets them."""
_MARK = r"<!-- (?P<what>[a-z]+)(?:: (?P<name>\S+))? -->\n"
_BLOCK = re.compile(_MARK + r"```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """`what`: `run`, `install`, `shown`, `file`, or what a page's own test knows; `name`: what stands after it."""

    what: str
    name: str
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """The marked blocks of a page.

    Raises:
        ValueError: a mark that is not just above its block.
    """
    found = [
        Block(match["what"], match["name"] or "", match["language"], match["text"]) for match in _BLOCK.finditer(text)
    ]
    if len(found) != text.count("<!-- "):
        raise ValueError(f"{text.count('<!-- ')} marks, {len(found)} of them just above a block")
    return found


@dataclass(frozen=True)
class Step:
    """What was typed, and how long it took, in seconds."""

    text: str
    seconds: float


@dataclass
class Walk:
    """Takes blocks in their order.

    Attributes:
        folder: where they run; empty at first.
        path: folder of the programs `gddl` and `python`.
        kept: variables of the program that commands have; by default that files are whole once they are written
            (conftest). `make newcomer` has none and waits as users do.
        output: of the last block that ran, both streams.
    """

    folder: Path
    path: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    kept: tuple[str, ...] = ("GDDL_SETTLE",)
    steps: list[Step] = field(default_factory=list)
    output: str = ""

    def take(self, block: Block) -> Iterator[Step]:
        """Answers a step for each command when it has ended.

        Raises:
            AssertionError: a command failed, or did not print what the page shows.
        """
        if block.what == "file":
            target = self.folder / block.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
        elif block.what == "shown":
            missing = [line for line in block.text.splitlines() if not _printed(line, self.output)]
            assert not missing, f"the page shows {missing}; printed was:\n{self.output}"
        elif block.what == "run":
            self.output = ""
            for command in [block.text] if block.language == "python" else _commands(block.text):
                yield self._run(command, block.language)

    def _run(self, command: str, language: str) -> Step:
        kept = {n: value for n, value in self.environ.items() if n in self.kept or not n.startswith("GDDL_")}
        environ = {**kept, "COLUMNS": "80", "PATH": os.pathsep.join([str(self.path), kept["PATH"]])}
        programs = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [str(self.path / "python"), "-c"]}
        began = time.monotonic()
        done = subprocess.run(
            [*programs[language], command], cwd=self.folder, env=environ, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=900,
        )  # fmt: skip
        self.output += done.stdout
        assert done.returncode == 0, f"{command}\nexit status {done.returncode}\n{done.stdout}"
        step = Step(command.partition("  #")[0].strip(), time.monotonic() - began)
        self.steps.append(step)
        return step


def _commands(text: str) -> list[str]:
    """A command for each line, those that a backslash continues together."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.partition("#")[0].strip()]


def _printed(line: str, output: str) -> bool:
    """Whether a printed line has the words of this one, however far they stand apart; `1` is not found in `165ms`."""
    parts = (r"\s+".join(re.escape(word) for word in part.split()) for part in line.split("…"))
    pattern = re.compile(r"\s*.*".join(rf"(?<!\w){part}(?!\w)" for part in parts))
    return not line.strip() or any(pattern.search(printed) for printed in output.splitlines())
