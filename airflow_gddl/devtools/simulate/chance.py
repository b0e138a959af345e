"""Random generators: one for each purpose, so that one option never changes the draws of another."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def chance(*purpose: object) -> random.Random:
    """A generator that depends on nothing but the purpose, e.g. `(seed, table, round, "late")`."""
    return random.Random("/".join(map(str, purpose)))  # noqa: S311 - made-up data, no secrets


def some(rng: random.Random, items: Sequence[T], share: float) -> list[T]:
    """About `share` of the items, in their order; at least one when the share is above 0 and there is any."""
    count = min(len(items), max(1, round(share * len(items)))) if share > 0 else 0
    return [items[i] for i in sorted(rng.sample(range(len(items)), count))]
