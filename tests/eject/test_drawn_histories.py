"""An ejected job against ours over drawn rows and histories: what it does not refuse or stop at, it loads alike.

The deep lane plays 200 histories, or as many as `EJECTED_HISTORIES` says.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import SPARK
from tests.eject.drawn import Drawn, Play

SAMPLE, ALL = 3, int(os.environ.get("EJECTED_HISTORIES", "200"))
SEEDS = [*range(SAMPLE), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(SAMPLE, ALL))]


@pytest.mark.deep
@pytest.mark.parametrize("seed", SEEDS)
def test_ejected_job_loads_what_ours_loads(seed: int, tmp_path: Path) -> None:
    drawn = Drawn.of(seed)
    ours, theirs = (Play.of(drawn, tmp_path / name) for name in ("ours", "theirs"))
    for play in (ours, theirs):
        play.begin()
    found = theirs.ejected(SPARK.for_table())
    ours.lost = theirs.lost
    assert found in (None, ours.end()), drawn
