"""Few assignments of values to factors, in which every pair of values occurs that can be combined."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

Factors = Mapping[str, tuple[Any, ...]]
Assignment = Mapping[str, Any]
Refusal = Callable[[Assignment], str]
"""Why an assignment, which may be of some of the factors, can't be; empty: it can."""
Choice = tuple[str, int]
Pair = tuple[Choice, Choice]

_TRIES = 30


class Covering:
    """The pairs of some factors.

    Attributes:
        possible: pairs that can be combined.
        refused: the other ones, and why.
    """

    def __init__(self, factors: Factors, refusal: Refusal) -> None:
        self.factors, self._refusal = factors, refusal
        self.possible: set[Pair] = set()
        self.refused: dict[Pair, str] = {}
        self._candidates: frozenset[Pair] = frozenset()
        choices = [[(name, at) for at in range(len(values))] for name, values in factors.items()]
        for one, other in itertools.combinations(choices, 2):
            for pair in itertools.product(one, other):
                why = refusal(self.values(pair))
                if why:
                    self.refused[pair] = why
                else:
                    self.possible.add(pair)
        self._candidates = frozenset(self.possible)  # what one draw finds impossible changes no other draw

    def values(self, choices: Iterable[Choice]) -> dict[str, Any]:
        return {name: self.factors[name][at] for name, at in choices}

    def cases(self, random: Random) -> list[Assignment]:
        """Assignments that cover all possible pairs; which they are depends on the random numbers."""
        order = sorted(self._candidates)
        random.shuffle(order)
        left, found = set(order), []
        for pair in order:
            case = self._with(pair, left, random) if pair in left else None
            if case is not None:
                left -= self.pairs_of(case)
                found.append(self.values(case.items()))
        return found

    def pairs_of(self, case: Mapping[str, int]) -> set[Pair]:
        chosen = [(name, case[name]) for name in self.factors]
        return set(itertools.combinations(chosen, 2))

    def covered(self, cases: Iterable[Assignment]) -> int:
        """How many possible pairs occur in these assignments."""
        found: set[Pair] = set()
        for case in cases:
            found |= self.pairs_of({name: self.factors[name].index(case[name]) for name in self.factors})
        return len(found & self.possible)

    def _with(self, pair: Pair, left: set[Pair], random: Random) -> dict[str, int] | None:
        """An assignment with the pair. None: none is found, and the pair is refused."""
        for _ in range(_TRIES):
            case = self._filled(dict(pair), left, random)
            if case is not None:
                return case
        self.possible.discard(pair)
        left.discard(pair)
        self.refused[pair] = "no assignment of the other factors goes with it"
        return None

    def _filled(self, case: dict[str, int], left: set[Pair], random: Random) -> dict[str, int] | None:
        order, chosen = {name: at for at, name in enumerate(self.factors)}, self.values(case.items())
        missing = [name for name in self.factors if name not in case]
        for name in random.sample(missing, len(missing)):
            gains = []
            for at in range(len(self.factors[name])):
                if not self._refusal({**chosen, name: self.factors[name][at]}):
                    pairs = (tuple(sorted([(name, at), other], key=lambda c: order[c[0]])) for other in case.items())
                    gains.append((-sum(each in left for each in pairs), random.random(), at))
            if not gains:
                return None
            case[name] = min(gains)[2]
            chosen[name] = self.factors[name][case[name]]
        return case
