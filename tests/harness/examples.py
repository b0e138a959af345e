"""Examples of Hypothesis that tests draw themselves, to play them together."""

from __future__ import annotations

import os
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

T = TypeVar("T")
_PLAIN = 8


def examples(default: int) -> int:
    """How many histories to draw, fixed or random; GDDL_EXAMPLES asks for more."""
    return int(os.environ.get("GDDL_EXAMPLES", default))


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """`count` examples; a Spark job costs too much for one example alone, so they share jobs."""
    found: list[T] = []

    @settings(max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


def rich(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Without the first examples: Hypothesis begins with the simplest there are."""
    return drawn(strategy, _PLAIN + count)[_PLAIN:]
