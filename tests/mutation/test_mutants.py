"""The command draws the same mutants again, and tells one that tests notice from one that they don't."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.mutation.judging import Judge
from tests.mutation.mutants import ROOMS, Mutant, drawn

MODULE = "def first(a, b):\n    return a < b\n\n\ndef other(a):\n    return a and True\n"
TEST = "from spark_jobs.rules.m import first\n\ndef test_first():\n    assert first(1, 2) and not first(2, 2)\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for room in ROOMS:
        (root / "spark_jobs" / room).mkdir(parents=True)
        (root / "spark_jobs" / room / "__init__.py").touch()
    (root / "spark_jobs/__init__.py").touch()
    (root / "tests").mkdir()
    (root / "spark_jobs/rules/m.py").write_text(MODULE)
    (root / "tests/test_m.py").write_text(TEST)
    (root / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--tasks')\n")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def judge(tree: Path, tmp_path: Path) -> Judge:
    touched = tmp_path / "touched.jsonl"
    line = {"passed": True, "seconds": 1.0, "functions": [["spark_jobs/rules/m.py", 1]]}
    failing = {**line, "passed": False, "functions": [["spark_jobs/rules/m.py", 5]]}
    lines = [
        {"test": f"tests/test_m.py::{name}", **each} for name, each in (("test_first", line), ("test_no", failing))
    ]
    touched.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return Judge.of(tree, tmp_path / "work", touched, seconds=5)


def test_a_seed_draws_the_same_mutants_and_each_is_another_module(tree: Path) -> None:
    found = drawn(tree, 1, 100)
    assert found[:3] == drawn(tree, 1, 3)
    assert {mutant.text.partition("  ->  ")[2] for mutant in found} == {"a <= b", "a >= b", "a or True", "a", "True"}
    assert all(ast.parse(mutant.source) and mutant.source != ast.unparse(ast.parse(MODULE)) for mutant in found)


def test_mutants_are_killed_survive_or_are_not_called(tree: Path, tmp_path: Path) -> None:
    judged = judge(tree, tmp_path)
    verdicts = {
        mutant.text.partition("  ->  ")[2]: judged.judged(mutant, n)[0] for n, mutant in enumerate(drawn(tree, 1, 100))
    }
    not_called = dict.fromkeys(("a or True", "a", "True"), "not called")
    assert verdicts == {"a <= b": "killed", "a >= b": "killed", **not_called}
    equal = Mutant("spark_jobs/rules/m.py", 2, 1, "", MODULE.replace("a < b", "b > a"))
    assert judged.judged(equal, 9) == ("survived", "1 tests")
    assert (judged.copy / "spark_jobs/rules/m.py").read_text() == MODULE
    assert (tree / "spark_jobs/rules/m.py").read_text() == MODULE
