"""Property tests draw ten fixed examples, or random ones that a printed seed repeats; one module says so for all."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROPERTY = """
from hypothesis import given
from hypothesis import strategies as st

@given(st.integers())
def test_numbers(number: int) -> None:
    with open("drawn.txt", "a") as file:
        print(number, file=file)
"""


def set_here(source: str) -> Iterator[str]:
    """Settings of Hypothesis that belong to a profile: how many examples, which, and how long."""
    for node in ast.walk(ast.parse(source)) if "hypothesis" in source else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("settings", "register_profile"):
            for one in node.keywords:
                fixed = one.arg == "max_examples" and isinstance(one.value, ast.Constant)
                if fixed or one.arg in ("derandomize", "deadline", "print_blob"):
                    yield f"{node.lineno}: {one.arg}={ast.unparse(one.value)}"


def drawn(folder: Path, *arguments: str) -> tuple[list[str], str]:
    """The numbers that a run draws, and the options that it prints."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "tests.harness.examples", "test_numbers.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("GDDL_SEED", None)
    (folder / "drawn.txt").unlink(missing_ok=True)
    ended = subprocess.run([*command, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True)
    options = re.findall(r"^random examples: (.*)$", ended.stdout, re.MULTILINE)
    return (folder / "drawn.txt").read_text().split(), "".join(options)


@pytest.mark.parametrize(
    "call", ["settings(max_examples=5)", "settings(derandomize=True)", "h.settings(deadline=None)"]
)
def test_a_profile_of_its_own_is_found(call: str) -> None:
    assert list(set_here(f"# hypothesis\n@{call}\ndef test(): ..."))
    assert not list(set_here("# hypothesis\n@settings(max_examples=at_random(5), phases=[])\ndef test(): ..."))


def test_profiles_are_in_one_module() -> None:
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path != ROOT / "tests" / "harness" / "examples.py"]
    assert [f"{path}:{line}" for path in paths for line in set_here(path.read_text())] == []


@pytest.mark.parametrize("ci", ["", "true"])
def test_the_printed_seed_repeats_random_examples(ci: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Hypothesis looks for the variable, not for a value.
    monkeypatch.setenv("CI", ci) if ci else monkeypatch.delenv("CI", raising=False)
    (tmp_path / "test_numbers.py").write_text(PROPERTY)
    fixed, nothing = drawn(tmp_path)
    assert (len(fixed), nothing) == (10, "")
    first, options = drawn(tmp_path, "-n", "1", "--hypothesis-profile", "random")
    assert len(first) > 500
    assert drawn(tmp_path, *options.split()) == (first, options)
    assert drawn(tmp_path, "--hypothesis-profile", "random", "--hypothesis-seed", "1")[0] != first
