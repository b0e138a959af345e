"""Random batches of our own commits equal those of Spark's `MERGE` and the oracle, with kills at every write."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.lake import Lake, spec_of
from tests.shadow.dying import AFTER, BEFORE, died
from tests.shadow.random_batches import (
    BREAKS,
    TOGETHER,
    Found,
    Lane,
    block,
    histories,
    options_of,
    play_by_processes,
    run,
    save_lane,
    saved_lane,
    saved_lanes,
    total,
)


@pytest.mark.deep
@pytest.mark.timeout(3000)
def test_random_batches_equal_merge(pytestconfig: pytest.Config) -> None:
    """A few; `make test-deep` goes on with the lane of its own, which writes docs/trust.md."""
    found = run(int(pytestconfig.getoption("--hypothesis-seed") or 0), seconds=1200, most=60)
    assert found.wrong == []
    assert found.differences == 0
    assert len(found.compared) >= 60
    assert set(found.broken) <= set(BREAKS)
    assert len(found.broken) > 5
    assert found.killed.total() - found.killed["no write"] > 5


@pytest.mark.deep
@pytest.mark.timeout(1500)
def test_process_with_spark_dies_and_the_next_one_goes_on(tmp_path: Path) -> None:
    lane = Lane(seed=3, until=time.time() + 900, most=3, deaths=1.0)
    found = play_by_processes(lane, tmp_path)
    assert found.wrong == []
    assert len(found.compared) >= 3
    assert [write for write in found.killed if write.startswith("Spark: ")] != []


def test_histories_of_a_seed_are_the_same_ones() -> None:
    first, again, other = histories(1, 4), histories(1, 4), histories(2, 4)
    assert first == again
    assert first != other
    assert {case.spec.shadow for case in first} == {True}


def test_histories_have_every_option() -> None:
    found = {name for seed in range(3) for case in histories(seed, TOGETHER) for name in options_of(case)}
    assert found == {
        "deletion vectors", "change feed", "ranges of keys", "partitions", "widened types", "new columns", "history",
        "soft deletes", "no keys", "key changes", "partial updates", "truncates", "filters", "generations",
    }  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", [*BEFORE, *AFTER])
def test_run_dies_at_the_write_and_the_next_one_ends_its_batch(kind: str, after: bool, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(history=True, shadow=True)
    lake.load(spec)
    lake.done(replace(spec, shadow=False))
    lake.change(spec, 1, [("U", 0, "new"), ("D", 1, None), ("X", 2, "bad")])
    said = died(lake.job([spec]), kind, after=after)
    wanted = f"{'after' if after else 'before'} {kind}"
    if kind.startswith("vectors"):  # the tier has none
        wanted = "before commit of replica" if "replica" in kind else "before ledger"
    assert said == wanted
    lake.done(replace(spec, shadow=False))
    assert lake.replica(spec) == {0: "new", 2: "load 2"}


def test_saved_lane_goes_on_where_it_was(tmp_path: Path) -> None:
    found = Found(
        {"0 s.t001 2"}, Counter({"history": 1}), {"x": 1.0}, Counter({"plan": 2}), Counter({"before plan": 1})
    )
    lane = Lane(seed=5, until=9.5, most=7, found=found, number=3, run=4, landed=True)
    save_lane(lane, tmp_path)
    assert saved_lane(tmp_path) == lane


def test_lanes_of_a_folder_add_up(tmp_path: Path) -> None:
    for seed, commit in ((5, "aa"), (6, "aa"), (9, "bb")):
        found = Found(
            {"0 s.t001 2", "0 s.t002 2"}, Counter({"history": 2}), {"x": 1.0}, killed=Counter({"no write": 1})
        )
        (tmp_path / str(seed)).mkdir()
        save_lane(Lane(seed, until=0, found=found, commit=commit), tmp_path / str(seed))
    found = total(saved_lanes(tmp_path))
    assert len(found.compared) == 6
    assert (found.options, found.counts, found.killed) == ({"history": 6}, {"x": 3.0}, {"no write": 3})
    text = block(saved_lanes(tmp_path))
    assert "6 random batches compared, 0 differences; runs killed by SIGKILL 0 times" in text
    assert "seed 5 and 6, commit aa; seed 9, commit bb." in text
