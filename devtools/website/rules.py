"""The rules of correctness, each with the scenarios that show it, in one task and over many."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import yaml

_RULE = re.compile(r"^(\d+)\. (.+?)(?=\n\d+\. |\n\n|\Z)", re.MULTILINE | re.DOTALL)
_DATA = re.compile(r"^(?:runs|table|options|expect)\b", re.MULTILINE)
_HEAD = """# Rules of correctness

What may be relied on, and what proves it. Each scenario is a folder of data below `tests/scenarios`: a row of metadata,
files as the CDC service delivers them, and what all tables must hold afterwards. Each is played in one task and over
many, as written, with its changes in another order, with all files at once, and once more after it had ended;
the replica is held against an oracle in plain Python as well. This page is made of the scenarios themselves.
To the bit: [semantics.md](semantics.md).

"""
BEYOND = {
    "4": ("tests/spark/test_crash.py", "tests/unit/test_ledger_crashes.py", "tests/s3/test_crashes_on_s3.py"),
    "10": ("tests/spark/test_interrupted_refresh.py",),
    "13": ("tests/spark/test_one_run_at_a_time.py", "tests/processes/test_claim.py", "tests/s3/test_claims_on_s3.py"),
}
"""By rule: tests of what no folder of data can show, such as processes that die or meet."""
OTHERS = {"dms": "Files of AWS DMS", "keyless": "Tables without keys", "quarantine": "Quarantine", "history": "History"}


@dataclass(frozen=True)
class Scenario:
    """A folder below tests/scenarios; `rules` are numbers of the rules in semantics.md, or words."""

    name: str
    title: str
    rules: tuple[str, ...]


def scenarios(root: Path) -> list[Scenario]:
    """All, by name."""
    found = []
    for path in sorted((root / "tests" / "scenarios").glob("*/scenario.yaml")):
        # What comes after the title is data of many pages, and of no use here.
        head = yaml.safe_load(_DATA.split(path.read_text("utf-8"))[0])
        found.append(Scenario(path.parent.name, str(head["title"]), tuple(str(rule) for rule in head["rule"])))
    return found


def rules(root: Path) -> dict[str, str]:
    """The text of each rule by its number, from docs/semantics.md."""
    text = (root / "docs" / "semantics.md").read_text(encoding="utf-8")
    section = text.partition("## Rules of correctness\n")[2].partition("\n## ")[0]
    return {number: " ".join(said.split()) for number, said in _RULE.findall(section)}


def page(root: Path) -> str:
    """Markdown, a section for each rule."""
    by_rule: defaultdict[str, list[Scenario]] = defaultdict(list)
    for scenario in scenarios(root):
        for rule in scenario.rules:
            by_rule[rule].append(scenario)
    stated = rules(root)
    words = sorted(rule for rule in by_rule if rule not in stated)
    parts = [_section(_title(said, number), said, by_rule[number], number) for number, said in stated.items()]
    parts += [_section(OTHERS.get(word, word.capitalize()), "", by_rule[word], word) for word in words]
    return _HEAD + "\n".join(parts)


def _title(said: str, number: str) -> str:
    bold = re.search(r"\*\*(.+?)\*\*", said)
    return f"{number}. {bold[1] if bold else said}"


def _section(title: str, said: str, proofs: list[Scenario], rule: str) -> str:
    rows = [f"| `{one.name}` | {one.title.replace('|', '¦')} |" for one in proofs]
    rows += [f"| `{path}` | processes that are killed, or that meet |" for path in BEYOND.get(rule, ())]
    table = ["| scenario or test | shows that |", "|---|---|", *rows, ""]
    return "\n".join([f"## {title}", *([said, ""] if said else []), *table])
