"""Runs the tests that call a mutant's function, in a copy of the tree."""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutation.mutants import Mutant

LANES = (
    "tests/unit", "tests/rules", "tests/tables", "tests/pairs", "tests/scenarios/test_scenarios.py", "tests/debezium",
    "tests/conformance", "tests/one_task",
)  # fmt: skip
Verdict = Literal["killed", "survived", "not called", "undecided"]


Function = tuple[str, int]
"""Path and first line."""


@dataclass(frozen=True)
class Called:
    """Functions that a test calls, and its seconds of CPU."""

    seconds: float
    functions: frozenset[Function]

    @property
    def cost(self) -> float:
        return self.seconds + 0.05


@dataclass(frozen=True)
class Judge:
    """Attributes:
    copy: the tree without what Git doesn't track, in which mutants are put.
    seconds: of CPU that the chosen tests of a mutant take together.
    """

    copy: Path
    touched: Path
    seconds: float

    @classmethod
    def of(cls, root: Path, work: Path, touched: Path | None, seconds: float) -> Judge:
        judge = cls(work / "tree", touched or work / "touched.jsonl", seconds)
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
        for name in filter(None, tracked.split("\0")):
            if (root / name).is_file():
                (judge.copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, judge.copy / name)
        if not judge.touched.exists():
            judge._play(LANES, "-p", "tests.mutation.touched", "--timeout", "3000", limit=None)
        return judge

    def judged(self, mutant: Mutant, number: int) -> tuple[Verdict, str]:
        """The verdict, and the test that failed or how many passed."""
        tests = list(self._tests(mutant))
        if not tests:
            return "not called", ""
        path = self.copy / mutant.path
        sound = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.source, encoding="utf-8")
            os.utime(path, (number, number))  # compiled code is known by whole seconds
            done = self._play(tests, "-x", limit=10 * int(self.seconds))
        finally:
            path.write_text(sound, encoding="utf-8")
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "killed", "it doesn't end"
        if done.returncode in (1, 2, 4) and (failed or done.returncode != 1):
            return "killed", (failed or ["it can't be imported"])[0]
        return ("survived", f"{len(tests)} tests") if done.returncode == 0 else ("undecided", done.stdout[-300:])

    def _tests(self, mutant: Mutant) -> Iterator[str]:
        """Tests that call the function, until their time is used.

        A third of it goes to those that call the fewest other functions, which are about this one. Then come those that
        call most besides for their time: the fastest ones alone are much alike, and say the same of a mutant.
        """
        left, calling, known = self.seconds, self._calling(mutant), set[Function]()
        for test in sorted(calling, key=lambda name: len(calling[name].functions)):
            if left < 2 * self.seconds / 3:
                break
            left -= calling[test].cost
            known |= calling.pop(test).functions
            yield test
        while calling and left >= 0:
            test = max(calling, key=lambda name: (1 + len(calling[name].functions - known)) / calling[name].cost)
            left -= calling[test].seconds
            known |= calling.pop(test).functions
            yield test

    def _calling(self, mutant: Mutant) -> dict[str, Called]:
        """The tests that call the function."""
        found = {}
        for test, called in self._called.items():
            lines = {at for path, at in called.functions if path == mutant.path}
            if mutant.function in lines or (lines and not mutant.function):
                found[test] = called
        return found

    @functools.cached_property
    def _called(self) -> dict[str, Called]:
        """Each test, with all its parameters: they may share what they play.

        A test that fails without a mutant, in the copy, tells nothing of one.
        """
        found, failing = dict[str, Called](), set[str]()
        for line in self.touched.read_text(encoding="utf-8").splitlines():
            played = json.loads(line)
            test = played["test"].partition("[")[0]
            before = found.get(test, Called(0.0, frozenset()))
            functions = frozenset((path, at) for path, at in played["functions"])
            found[test] = Called(before.seconds + played["seconds"], before.functions | functions)
            failing |= set() if played["passed"] else {test}
        return {test: called for test, called in found.items() if test not in failing}

    def _play(self, tests: Sequence[str], *options: str, limit: int | None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tasks", "one", *options, *tests]
        env = {**os.environ, "PYTHONPATH": str(self.copy), "GDDL_TOUCHED": str(self.touched.absolute())}
        bound = (lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))) if limit else None
        return subprocess.run(
            command, cwd=self.copy, env=env, capture_output=True, text=True, check=False, preexec_fn=bound,
        )  # fmt: skip
