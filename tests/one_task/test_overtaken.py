"""A run that was paused for longer than its claim holds, at calls of the store, and overtaken by another run: it says
that it lost the table, or had done its work; and the next run is right.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from tests.harness.lake import Lake, spec_of

pytestmark = pytest.mark.wide

SPEC = spec_of()
CALLS = ("create_once", "delete", "list", "read", "read_tagged", "swap_once", "write")
VERBS = {
    "run": JobOptions(),
    "rebuild": JobOptions(action=Rebuild()),
    "reload": JobOptions(action=Reload(confirmed=True)),
}


def later() -> datetime:
    """The clock of who finds the claim void."""
    return datetime.now(UTC) + timedelta(minutes=2)


class Pausing(Storage):
    """Does something else before one of its calls."""

    def __init__(self, at: int, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.left, self.meanwhile = at, meanwhile

    def __getattribute__(self, name: str) -> Any:
        if name in CALLS:
            self.left -= 1
            if self.left == 0:
                self.meanwhile()
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("verb", "other", "step"),
    [("run", "run", 6), ("run", "reload", 9), ("rebuild", "run", 15), ("reload", "rebuild", 15)],
)
def test_an_overtaken_run_says_so(verb: str, other: str, step: int, tmp_path: Path) -> None:
    at, said = 1, set()
    while True:
        lake = Lake(tmp_path / str(at))
        lake.load(SPEC, 4)
        lake.change(SPEC, 1, [("U", 1, "one")])
        lake.done(SPEC)
        lake.change(SPEC, 2, [("U", 2, "two"), ("D", 3, None)])
        storage = Pausing(at, lambda lake=lake: lake.done(SPEC, VERBS[other], clock=later))  # type: ignore[misc] # the lake is bound
        error = lake.result(SPEC, VERBS[verb], storage=storage).error
        said.add(None if error is None else error.code)
        lake.done(SPEC)
        assert lake.replica(SPEC) == {0: "load 0", 1: "one", 2: "two"}, at
        if storage.left > 0:
            break
        at += step
    assert said == {None, "CLAIM_LOST"}
    assert at > 30
