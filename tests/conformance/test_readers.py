"""This project's readers, and two that people write by hand, judged by the models of the writers.

`make test` plays a few cases of each writer, the deep lane those of a whole covering array in each place and by each
way to commit; `CONFORMANCE_SEED` draws the cases of a run again, and each message says how to play one
(docs/conformance.md).
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from types import ModuleType

import pytest

from tests.conformance.adapters import deltalake_merge, merge_by_hand, ours, ours_by_command
from tests.conformance.kinds import KINDS
from tests.conformance.names import NAMES, Names
from tests.conformance.playing import Case, cases_of, played

SEED = int(os.environ.get("CONFORMANCE_SEED") or SystemRandom().randint(1, 10**6))
_SAMPLE = {writer: (0, 3) if writer == "debezium_mysql" else (0, 4) for writer in KINDS}


def _told(case: Case, text: str) -> str:
    again = f"python -m tests.conformance --writer {case.kind} --seed {case.seed} --case {case.number}"
    again += f" --names {case.names}"
    return f"{again}: {text}\n{case.unusual()}"


@pytest.mark.parametrize(("writer", "number"), [(w, n) for w, numbers in _SAMPLE.items() for n in numbers])
def test_sample_is_right(writer: str, number: int) -> None:
    case = cases_of(writer, 1)[number]
    verdict = played(case, ours.play)
    assert verdict.mark in ("PASS", "LOUD"), _told(case, verdict.text)


@pytest.mark.parametrize(("writer", "names"), zip(KINDS, itertools.cycle(NAMES[1:]), strict=False))
def test_names_that_meet_others_are_right(writer: str, names: Names) -> None:
    case = replace(cases_of(writer, 1)[5], names=names)
    verdict = played(case, ours.play)
    assert verdict.mark in ("PASS", "LOUD"), _told(case, verdict.text)


def test_command_gives_the_same_table() -> None:
    case = next(case for case in cases_of("debezium_postgres", 1) if case.given["arrival"] == "once")
    verdict = played(case, ours_by_command.play)
    assert verdict.mark == "PASS", _told(case, verdict.text)


@pytest.mark.deep
@pytest.mark.parametrize("place", ours.PLACES)
@pytest.mark.parametrize("writer", KINDS)
def test_nothing_is_wrong(writer: str, place: str) -> None:
    """Spark plays every fourth case in each place; one has other settings, events and names than the next."""
    cases = [replace(case, names=NAMES[case.number % len(NAMES)]) for case in cases_of(writer, SEED)]
    cases = cases if place == "one" else cases[ours.PLACES.index(place) :: 4]
    print(f"\n{writer} in {place}: {len(cases)} cases of CONFORMANCE_SEED={SEED}")
    verdicts = [(case, played(case, functools.partial(ours.play, place=place))) for case in cases]
    print(dict(Counter(verdict.mark for _, verdict in verdicts)))
    assert [_told(case, v.text) for case, v in verdicts if v.mark == "WRONG"] == []


@pytest.mark.parametrize("adapter", [merge_by_hand, deltalake_merge])
def test_jobs_by_hand_are_judged_too(adapter: ModuleType) -> None:
    """They are right where nothing unusual happens, and wrong where the files don't tell all in one row."""
    plain = {name: values[0] for name, values in KINDS["dms"].factors.items()}
    unusual = {**plain, "moved": True, "BeforeImages": "all"}
    verdicts = [played(Case("dms", 1, 0, given), adapter.play) for given in (plain, unusual)]
    assert [verdict.mark for verdict in verdicts] == ["PASS", "WRONG"], verdicts


def test_reader_of_the_page_is_judged(tmp_path: Path) -> None:
    """It has a gap where a program is to be run, so that its tables are empty."""
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text()
    (tmp_path / "mine.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    words = ["-m", "tests.conformance", "--adapter", "mine:play", "--writer", "exports", "--cases", "1"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert (done.returncode, "| mine:play | PASS | LOUD | REFUSED | WRONG |" in done.stdout) == (1, True), done.stderr


def test_command_prints_marks() -> None:
    words = [
        "-m",
        "tests.conformance",
        "--adapter",
        "merge_by_hand",
        "--writer",
        "exports",
        "--seed",
        "5",
        "--cases",
        "2",
    ]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert "| merge_by_hand | PASS | LOUD | REFUSED | WRONG |" in done.stdout, done.stderr
    assert "exports: 2 cases" in done.stdout
