"""Cases that cover all pairs of settings and events of a writer, and the play of one on a reader."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.conformance.covering import Covering
from tests.conformance.delivery import Arrival, Delivery, Outcome
from tests.conformance.history import EVENTS, drawn
from tests.conformance.judging import Verdict, judge
from tests.conformance.kinds import KINDS
from tests.conformance.names import Names, with_names

Play = Callable[[Delivery, Path], Outcome]


@dataclass(frozen=True)
class Case:
    """Attributes:
    kind: name of the writer.
    given: a value for each setting and event.
    names: of the table and its columns.
    """

    kind: str
    seed: int
    number: int
    given: Mapping[str, Any]
    names: Names = "plain"

    def delivery(self) -> Delivery:
        writer = KINDS[self.kind]
        happens = {name: self.given[name] for name in EVENTS}
        seed = f"{self.seed}.{self.number}"
        history = with_names(drawn(seed, happens, writer.columns), self.names, self.kind, seed)
        delivery = writer.write(history, {name: self.given[name] for name in writer.settings})
        return replace(delivery, arrivals=arranged(delivery.arrivals, self.given["arrival"]))

    def unusual(self) -> dict[str, Any]:
        """Settings and events other than the usual ones."""
        factors = KINDS[self.kind].factors
        return {name: value for name, value in self.given.items() if value != factors[name][0]}


@functools.cache
def covering_of(kind: str) -> Covering:
    return Covering(KINDS[kind].factors, KINDS[kind].refusal)


@functools.cache
def cases_of(kind: str, seed: int) -> list[Case]:
    """Cases that cover all pairs that can be combined."""
    given = covering_of(kind).cases(Random(f"{kind}.{seed}"))  # noqa: S311 - no secret
    return [Case(kind, seed, number, values) for number, values in enumerate(given)]


def arranged(arrivals: tuple[Arrival, ...], how: str) -> tuple[Arrival, ...]:
    """Arrivals one by one, all before one run, or the last two that follow each other in the other order."""
    if how == "once":
        kept: dict[str, Any] = {}
        for arrival in arrivals:
            kept = {} if arrival.emptied else kept
            for file in arrival.files:
                kept.pop(file.path, None)  # a file that is written again comes after those that were written before
                kept[file.path] = file
        return (Arrival(tuple(kept.values()), in_files=arrivals[-1].in_files),)
    if how == "swapped" and len(arrivals) > 2 and not (arrivals[-1].emptied or arrivals[-2].emptied):
        return (*arrivals[:-2], arrivals[-1], replace(arrivals[-2], in_files=arrivals[-1].in_files))
    return arrivals


def played(case: Case, play: Play) -> Verdict:
    """The verdict on a reader; whatever it raises is `WRONG`."""
    delivery = case.delivery()
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        try:
            outcome = play(delivery, Path(folder))
        except Exception as error:  # noqa: BLE001 - a reader may raise anything
            return Verdict("WRONG", f"raised {type(error).__name__}: {error}"[:300])
    return judge(delivery, outcome)


def smaller(case: Case, play: Play) -> tuple[Case, Verdict]:
    """The case with as many usual settings and events as leave its mark."""
    writer, verdict = KINDS[case.kind], played(case, play)
    for name in case.unusual():
        given = {**case.given, name: writer.factors[name][0]}
        if writer.refusal(given):
            continue
        tried = replace(case, given=given)
        found = played(tried, play)
        if found.mark == verdict.mark and found.differences <= verdict.differences:
            case, verdict = tried, found
    return case, verdict
