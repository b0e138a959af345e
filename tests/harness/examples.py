"""A plugin of pytest: which examples property tests draw, and how many. Ten fixed, or many random in `make test-deep`.

A run with random examples prints its seed when it begins; `--hypothesis-profile random --hypothesis-seed N` draws the
same ones again. The time of an example is no finding: on a busy machine any may take seconds.
"""

from __future__ import annotations

import os
import random
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, is_hypothesis_test, settings
from hypothesis import strategies as st

T = TypeVar("T")
FIXED, RANDOM = 10, "random"
_PLAIN = 8

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=FIXED)
# Where CI is set, Hypothesis's own default is derandomized, and a profile takes over what it doesn't say.
settings.register_profile(RANDOM, deadline=None, derandomize=False, print_blob=True, max_examples=1000)
settings.load_profile("fixed")


def is_random() -> bool:
    return settings.get_current_profile_name().startswith(RANDOM)


def at_random(count: int) -> int:
    """`max_examples` of a test that draws so many random examples, for what one of them costs, instead of 1000."""
    return count if is_random() else min(count, FIXED)


def examples(default: int) -> int:
    """How many histories to draw, fixed or random; GDDL_EXAMPLES asks for more."""
    return int(os.environ.get("GDDL_EXAMPLES", default))


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """`count` examples; a Spark job costs too much for one example alone, so they share jobs."""
    found: list[T] = []

    def collect(example: T) -> None:
        found.append(example)

    chosen = settings(max_examples=count, database=None, phases=[Phase.generate],
                      suppress_health_check=list(HealthCheck))  # fmt: skip
    chosen(given(strategy)(collect))()
    return found


def rich(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Without the first examples: Hypothesis begins with the simplest there are."""
    return drawn(strategy, _PLAIN + count)[_PLAIN:]


def is_property(item: pytest.Item) -> bool:
    """Whether the test draws examples itself, or stands in a module that draws them by a function of this one."""
    if not isinstance(item, pytest.Function):
        return False
    here = {id(function) for function in (drawn, rich, examples)}
    draws = is_hypothesis_test(item.obj) or given.__name__ in item.function.__code__.co_names
    return draws or any(id(value) in here for value in vars(item.module).values())


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for all processes of a run with random examples, before Hypothesis reads the option."""
    if config.getoption("--hypothesis-profile") == RANDOM and config.getoption("--hypothesis-seed") is None:
        # Processes that tests are spread over inherit it.
        config.option.hypothesis_seed = os.environ.setdefault("GDDL_SEED", str(random.SystemRandom().randrange(10**9)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print how to draw the same examples again, where they are not fixed."""
    if is_random() and not hasattr(session.config, "workerinput"):
        seed = session.config.getoption("--hypothesis-seed")
        terminal = session.config.get_terminal_writer()
        terminal.line(f"random examples: --hypothesis-profile {RANDOM} --hypothesis-seed {seed}")
