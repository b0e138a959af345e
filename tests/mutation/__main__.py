"""`python -m tests.mutation --seed N --count 200`: draws mutants, and prints which the tests kill; docs/trust.md."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutation.judging import Judge
from tests.mutation.mutants import drawn

ROOT = Path(__file__).parents[2]


def main() -> int:
    """The exit status: 1 where a mutant survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Judge tests by random mutants.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", type=int, action="append", help="number of a mutant of the seed, to play it again")
    parser.add_argument("--seconds", type=float, default=60, help="of CPU for the tests of a mutant, fastest first")
    parser.add_argument("--touched", type=Path, help="which tests call which functions: made if it isn't there")
    given = parser.parse_args()
    mutants, found = drawn(ROOT, given.seed, given.count), Counter[str]()
    with tempfile.TemporaryDirectory() as work:
        judge = Judge.of(ROOT, Path(work), given.touched, given.seconds)
        for number in given.only or range(len(mutants)):
            verdict, why = judge.judged(mutants[number], number + 1)
            found[verdict] += 1
            print(f"{verdict:10} --seed {given.seed} --only {number}  {mutants[number]}  {why}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items())))
    return int(set(found) != {"killed"})


if __name__ == "__main__":
    raise SystemExit(main())
