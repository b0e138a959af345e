"""The project's size stays below the number of docs/decisions/size.md, which only a commit of its own raises."""

from __future__ import annotations

import subprocess

import pytest

from devtools import purse
from devtools.purse import PAGE, ROOT, held, parts, tokens


def git(*words: str) -> list[str]:
    command = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *words)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def number(commit: str) -> int:
    """The number that a commit's page allows; 0: it has no such page."""
    found = purse._HELD.search("\n".join(git("show", f"{commit}:{PAGE.as_posix()}")))
    return 0 if found is None else int(found[1].replace(",", ""))


def test_the_sum_is_at_most_what_the_page_allows() -> None:
    if not git("ls-files"):
        pytest.skip("a tree without git")
    counted = parts(ROOT)
    assert sum(counted.values()) <= held(ROOT), counted


def test_a_raise_touches_its_page_alone() -> None:
    changes = git("log", "-2", "--format=%H", "--", PAGE.as_posix())
    if len(changes) < 2 or number(changes[0]) <= number(changes[1]):
        return  # a first number, a lower one, or a clone without its history
    assert git("show", "--name-only", "--format=", changes[0]) == [PAGE.as_posix()]


def test_texts_and_layout_count_as_they_should() -> None:
    assert tokens("x = 1\n") == tokens('"""A docstring of six words."""\nx = (\n    1\n)  # a comment\n') - 2
    assert tokens("x = 'a b c d e f'\n") == tokens("x = 'a b c'\n") + 3
