"""A covering array: few assignments of all factors in which every pair of values occurs that can be combined."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from tests.pairs.options import FACTORS, Assignment, Choice, all_pairs, completed, refusal

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


def _gain(case: Assignment, choice: Choice, left: set[Pair], order: dict[str, int]) -> int:
    pairs = (sorted(((name, at), choice), key=lambda each: order[each[0]]) for name, at in case.items())
    return sum((one, other) in left for one, other in pairs)
