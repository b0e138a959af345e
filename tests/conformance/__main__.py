"""`python -m tests.conformance --adapter NAME --seed N`: marks by writer; docs/conformance.md."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import time
from collections import Counter
from dataclasses import replace
from itertools import islice

from tests.conformance.judging import MARKS, Mark
from tests.conformance.kinds import KINDS
from tests.conformance.names import NAMES
from tests.conformance.playing import Case, Play, cases_of, covering_of, played, smaller


def main() -> int:
    """The exit status: 1 where something is `WRONG`."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Judge a reader of change files.")
    parser.add_argument("--adapter", default="ours", help="module of tests/conformance/adapters, or module:function")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--writer", choices=[*KINDS], action="append", help="all without it")
    parser.add_argument("--case", type=int, help="one case of each writer alone, with its settings and events")
    parser.add_argument("--cases", type=int, help="at most so many of each writer and seed")
    parser.add_argument("--names", choices=NAMES, default="plain", help="names of the table and its columns")
    parser.add_argument("--smaller", action="store_true", help="make each wrong case smaller")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("GDDL_SETTLE", "0s")
    play = adapter(given.adapter)
    counts: dict[tuple[str, Mark], int] = Counter()
    for writer in given.writer or KINDS:
        _judged(writer, given, play, counts)
    print(_table(given.adapter, counts))
    return int(any(mark == "WRONG" for _, mark in counts))


def adapter(name: str) -> Play:
    """The function of an adapter: of a module here, or anywhere as `module:function`.

    Raises:
        SystemExit: the tool that it needs is not installed.
    """
    module, _, function = name.partition(":")
    try:
        loaded = importlib.import_module(module if function else f"tests.conformance.adapters.{module}")
    except ImportError as error:
        raise SystemExit(f"adapter {name!r} can't run here: {error}") from error
    found: Play = getattr(loaded, function or "play")
    return found


def _judged(writer: str, given: argparse.Namespace, play: Play, counts: dict[tuple[str, Mark], int]) -> None:
    began, cases = time.monotonic(), []
    for seed in range(given.seed, given.seed + given.seeds):
        cases += list(islice(cases_of(writer, seed), given.cases))
    cases = [replace(case, names=given.names) for case in cases if given.case in (None, case.number)]
    for case in cases:
        verdict = played(case, play)
        counts[writer, verdict.mark] += 1
        if verdict.mark in ("WRONG", "REFUSED") or given.case is not None:
            print(f"{verdict.mark} {_again(case)}: {verdict.text}\n    {case.unusual()}", flush=True)
        if verdict.mark == "WRONG" and given.smaller:
            small, left = smaller(case, play)
            print(f"    smaller: {left.text}\n    {small.unusual()}", flush=True)
    array = covering_of(writer)
    pairs = f"{array.covered([case.given for case in cases]):,} of {len(array.possible):,} pairs"
    print(f"{writer}: {len(cases)} cases, {pairs}, {time.monotonic() - began:.0f} s", flush=True)


def _again(case: Case) -> str:
    names = "" if case.names == "plain" else f" --names {case.names}"
    return f"--writer {case.kind} --seed {case.seed} --case {case.number}{names}"


def _table(name: str, counts: dict[tuple[str, Mark], int]) -> str:
    writers = dict.fromkeys(writer for writer, _ in counts)
    lines = [f"| {name} | {' | '.join(MARKS)} |", "|---" * (len(MARKS) + 1) + "|"]
    lines += [f"| {w} | {' | '.join(str(counts.get((w, mark), 0)) for mark in MARKS)} |" for w in writers]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
