"""Random batches of our own commits equal those of Spark's `MERGE`, and the oracle, broken off at any write."""

from __future__ import annotations

import pytest

from tests.shadow.random_batches import BREAKS, histories, run


@pytest.mark.deep
@pytest.mark.timeout(3000)
def test_random_batches_equal_merge(pytestconfig: pytest.Config) -> None:
    """A few; `make test-deep` goes on with the lane of its own, which writes docs/trust.md."""
    found = run(int(pytestconfig.getoption("--hypothesis-seed") or 0), seconds=1200, most=60, say=False)
    assert found.wrong == []
    assert found.differences == 0
    assert len(found.compared) >= 60
    assert set(found.broken) <= set(BREAKS)
    assert len(found.broken) > 5


def test_histories_of_a_seed_are_the_same_ones() -> None:
    first, again, other = histories(1, 4), histories(1, 4), histories(2, 4)
    assert first == again
    assert first != other
    assert {case.spec.shadow for case in first} == {True}
