"""A covering array: few assignments of all factors in which every pair of values occurs that can be combined.

To occur is not to matter: what is expected of a case may be the same without a value. So for each value that no case
needs, one is drawn that does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from tests.pairs.mattering import FACTS, cases_with, tells, values_of
from tests.pairs.options import FACTORS, Assignment, Choice, all_pairs, completed, default_of, refusal

Pair = tuple[Choice, Choice]


@dataclass
class CoveringArray:
    """Attributes:
    refused: pairs that can't be combined, and why.
    """

    cases: list[Assignment] = field(default_factory=list)
    refused: dict[Pair, str] = field(default_factory=dict)
    possible: set[Pair] = field(default_factory=set)

    @classmethod
    def made(cls, seed: int = 1) -> CoveringArray:
        array = cls()
        for pair in all_pairs():
            if completed(dict(pair)) is None:
                array.refused[pair] = refusal(dict(pair))
            else:
                array.possible.add(pair)
        left, random = set(array.possible), Random(seed)  # noqa: S311 - no secret
        while left:
            case = _case(min(left), left, random)
            left -= pairs_of(case)
            array.cases.append(case)
        for name, at in values_of([name for name in FACTORS if name not in FACTS]):
            if not any(tells(case, name) for case in cases_with(array.cases, name, at)):
                found = next((case for case in _drawn(name, at, random) if tells(case, name)), None)
                assert found is not None, f"{name}={FACTORS[name][at]!r} changes nothing that is expected: see FACTS"
                array.cases.append(found)
        return array

    def covered(self, cases: Iterable[Assignment]) -> int:
        return len(set().union(*(pairs_of(case) for case in cases)) & self.possible)


def pairs_of(case: Assignment) -> set[Pair]:
    """Pairs of values of an assignment, in the order of the factors."""
    chosen = [(name, case[name]) for name in FACTORS]
    return set(itertools.combinations(chosen, 2))


def _case(pair: Pair, left: set[Pair], random: Random) -> Assignment:
    """An assignment with a pair, each further factor with the value that covers most of what is left."""
    case = dict(completed(dict(pair)) or {})
    order = {name: at for at, name in enumerate(FACTORS)}
    for name in random.sample(sorted(set(FACTORS) - set(case)), len(FACTORS) - len(case)):
        gains = {at: (-_gain(case, (name, at), left, order), random.random()) for at in range(len(FACTORS[name]))}
        case[name] = next(at for at in sorted(gains, key=gains.__getitem__) if not refusal({**case, name: at}))
    return case


def _drawn(name: str, at: int, random: Random) -> Iterator[Assignment]:
    """Random assignments with a value; other factors have their default in three of four."""
    for _ in range(5000):
        case = {
            each: random.choice([default_of(each)] * 3 + [random.randrange(len(FACTORS[each]))]) for each in FACTORS
        }
        case[name] = at
        if not refusal(case):
            yield case


def _gain(case: Assignment, choice: Choice, left: set[Pair], order: dict[str, int]) -> int:
    pairs = (sorted(((name, at), choice), key=lambda each: order[each[0]]) for name, at in case.items())
    return sum((one, other) in left for one, other in pairs)
