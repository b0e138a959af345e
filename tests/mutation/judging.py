"""Runs the tests that call a mutant's function, in a copy of the tree."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutation.mutants import Mutant

LANES = (
    "tests/unit", "tests/rules", "tests/tables", "tests/pairs", "tests/scenarios/test_scenarios.py", "tests/debezium",
    "tests/conformance", "tests/delta_rs",
)  # fmt: skip
Verdict = Literal["killed", "survived", "not called", "undecided"]


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
        """Tests that call the function, the fastest first, until their time is used."""
        left = self.seconds
        for seconds, test in sorted((taken, name) for name, taken in self._calling(mutant).items()):
            if left >= 0:
                left -= seconds
                yield test

    def _calling(self, mutant: Mutant) -> dict[str, float]:
        """Seconds of the tests that call the function, each with all its parameters: they may share what they play.

        A test that fails without a mutant, in the copy, tells nothing of one.
        """
        seconds, calling, failing = defaultdict[str, float](float), set[str](), set[str]()
        for line in self.touched.read_text(encoding="utf-8").splitlines():
            played = json.loads(line)
            test = played["test"].partition("[")[0]
            seconds[test] += played["seconds"]
            failing |= set() if played["passed"] else {test}
            lines = [at for path, at in played["functions"] if path == mutant.path]
            if mutant.function in lines or (lines and not mutant.function):
                calling.add(test)
        return {test: seconds[test] for test in calling - failing}

    def _play(self, tests: Sequence[str], *options: str, limit: int | None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--engine", "delta_rs", *options, *tests]
        env = {**os.environ, "PYTHONPATH": str(self.copy), "GDDL_TOUCHED": str(self.touched.absolute())}
        bound = (lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))) if limit else None
        return subprocess.run(
            command, cwd=self.copy, env=env, capture_output=True, text=True, check=False, preexec_fn=bound,
        )  # fmt: skip
