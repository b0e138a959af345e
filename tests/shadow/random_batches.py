"""Random batches whose commits are compared with Spark's `MERGE`, broken off at every write, and judged by the oracle.

    python -m tests.shadow.random_batches --seconds 3600 --write docs/trust.md

draws histories until the time is up or enough batches were compared, prints what it found, and writes it into the
block of the page. `--seed` draws the same ones again.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from airflow_gddl.contract.result import JobResult, summed_figures
from airflow_gddl.contract.shadow import shadow_folder
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Step
from spark_jobs.features.shadow.kept import KeptDifferences
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.examples import drawn
from tests.harness.lake import Lake
from tests.harness.strategies import EVERYTHING, Case, Traits, cases
from tests.spark.breaking import Break, Breaker, BrokenOffError
from tests.spark.playing import Stage

MOST = 10_000
TOGETHER = 12
"""Tables of one lake, which share their jobs."""
BEGIN, END = "<!-- shadow: written by tests.shadow.random_batches -->", "<!-- shadow: end -->"
SORTS: dict[str, Traits] = {
    "plain": Traits(variants=False),
    "composite": Traits(composite=True, numbered=True, renames=True),
    "partial": Traits(partial=True, ties=False, steps=True),
    "conditions": Traits(conditions=True, renames=True),
    "rescued": Traits(partial=True, rescues=True),
    "keyless": Traits(keyless=True, bad_rows=True),
    "truncates": Traits(truncates=True),
    "everything": EVERYTHING,
}
BREAKS = ("plan", "quarantine", "append", "tombstones compared", "tombstones", "replica compared", "merge",
          "history compared", "history", "commit", "committed")  # fmt: skip
"""Steps after which a table is broken off; writes that follow are not made."""


@dataclass
class Found:
    """What was played.

    Attributes:
        compared: batches whose commit to the replica was compared.
        counts: figures of the results; of batches that were broken off after their commit, none.
        broken: broken off, by step.
        wrong: what differs, by table.
    """

    compared: set[tuple[int, str, int]] = field(default_factory=set)
    counts: dict[str, float] = field(default_factory=dict)
    broken: Counter[str] = field(default_factory=Counter)
    differences: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Watch:
    """An observer that notes what was compared and then breaks tables off."""

    found: Found
    lake: int
    breaker: Breaker

    def __call__(self, step: Step) -> None:
        if step.step == "replica compared":
            self.found.compared.add((self.lake, step.table, step.batch))
        try:
            self.breaker(step)
        except BrokenOffError:
            self.found.broken[step.step] += 1
            raise


def many_runs(traits: Traits) -> Traits:
    """More runs, since the first of a table is not compared, and no full loads but that one."""
    return replace(traits, min_changes=12, max_changes=36, max_files=12, max_runs=8, reloads=False, corrections=False)


def histories(seed: int, count: int) -> list[Case]:
    """Tables of all sorts; every third has deletion vectors, every fifth a change feed."""
    found = []
    for at, traits in enumerate(SORTS.values()):
        each = many_runs(traits)
        found += drawn(cases(each), -(-count // len(SORTS)) + 8, seed + at)[8:]  # Hypothesis begins with the simplest
    chosen = random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - a repeatable choice
    return [_as_table(number, case) for number, case in enumerate(chosen)]


def _as_table(number: int, case: Case) -> Case:
    feed = {"delta.enableChangeDataFeed": "true"} if number % 5 == 0 else {}
    size = "large" if number % 3 == 0 else "small"
    spec = replace(case.spec, table=f"s.t{number:03d}", shadow=True, size=size, table_properties=feed)
    return replace(case, spec=spec)


def bounds_of(table: str) -> TaskBounds:
    """Every fourth table has large batches, which tasks merge by ranges of keys."""
    usual = TaskBounds()
    return replace(usual, batch=-1) if int(table[-3:]) % 4 == 3 else usual


def play(port: LocalPort, folder: Path, number: int, chosen: Sequence[Case], found: Found, until: float) -> None:
    """All runs of the tables of a lake: each broken off once, run again, and judged."""
    lake = Lake(folder)
    stage = Stage(port, lake, chosen)
    for run in range(max(len(case.runs) for case in chosen)):
        if time.monotonic() > until:
            return
        active = stage.land(run)
        breaks = {c.spec.table: Break(BREAKS[(run + at) % len(BREAKS)]) for at, c in enumerate(active)}
        job = lake.job([case.spec for case in active], run_id=f"run-{run}")
        watch = Watch(found, number, Breaker(breaks))
        results = lake.results(port, job, watch)
        again = lake.results(port, replace(job, run_id=f"again-{run}"), Watch(found, number, Breaker({})))
        _count(found, [*results.values(), *again.values()])
        stage.blame_failures(f"in run {run}", again)
        for case in active:
            if case.spec.table not in stage.wrong:
                stage.judge(case, run, None)
    for case in chosen:
        kept = KeptDifferences(Storage(), shadow_folder(lake.roots.lake, case.spec))
        for one in kept.open():
            found.differences += 1
            stage.blame(case, "shadow", [str(one)])
    if stage.wrong:
        found.wrong.append(stage.report())


def _count(found: Found, results: Sequence[JobResult]) -> None:
    for result in results:
        found.counts = summed_figures((found.counts, result.features))


def run(seed: int, seconds: float, most: int = MOST, say: bool = True) -> Found:
    """Play lakes until time is up, enough was compared, or something differs."""
    port, found, until = LocalPort("spark"), Found(), time.monotonic() + seconds
    port.runtime = replace(port.runtime, bounds_of=bounds_of)
    for number in _numbers():
        if time.monotonic() > until or len(found.compared) >= most or found.wrong:
            return found
        with tempfile.TemporaryDirectory(prefix="gddl-shadow-") as folder:
            play(port, Path(folder), number, histories(seed + 1000 * number, TOGETHER), found, until)
        if say:
            print(f"{len(found.compared)} compared, {found.differences} differences, {found.counts}", flush=True)
    return found


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def block(found: Found, seed: int, commit: str) -> str:
    """The block of the page."""
    broken = sum(found.broken.values())
    return (
        f"{BEGIN}\n{len(found.compared):,} random batches compared, {found.differences:,} differences; broken off "
        f"{broken:,} times at {len(found.broken):,} steps; seed {seed}, commit {commit}.\n{END}"
    )


def write(page: Path, text: str) -> None:
    """Replace the block of a page."""
    content = page.read_text(encoding="utf-8")
    new, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: text, content, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page} has no block of shadow, or several")
    page.write_text(new, encoding="utf-8")


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--batches", type=int, default=MOST)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    commit = _commit()
    print(f"seed {given.seed}, commit {commit}", flush=True)
    found = run(given.seed, given.seconds, given.batches)
    print("\n".join([block(found, given.seed, commit), f"not compared: {found.counts}", *found.wrong]))
    if given.write is not None and not found.wrong:
        write(given.write, block(found, given.seed, commit))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
