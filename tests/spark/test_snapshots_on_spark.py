"""Snapshots as a source, where tasks of Spark work on the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.one_task.test_snapshot_histories import ROWS, play
from tests.one_task.test_table_snapshots import SPEC, Exports, codes


def test_snapshots_out_of_order_with_a_history(tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path, port=LocalPort("many")), replace(SPEC, history=True, delete="soft"))
    truth = {1: {1: "a", 2: "b", 3: "c"}, 2: {1: "x", 3: "c"}, 3: {1: "a", 2: "b", 4: "d"}}
    landed = {}
    for day in (1, 3, 2):
        exports.land(day, truth[day], files=2)
        landed[day] = truth[day]
        assert codes(exports.run()) == {}
        assert exports.replica() == landed[max(landed)]
        assert {one: exports.as_of(one) for one in landed} == landed


def test_change_files_are_named_and_masked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks read them, too, and neither rename, compute nor mask what capture has."""
    drawn = {
        **ROWS[0], "keys": "masked", "order": "late", "mask": "hash", "exclude": False, "rename": True, "derive": True,
        "where": True, "dropped_column": "keep", "gate": "expect", "repair": "rebuild", "history": True,
    }  # fmt: skip
    play(5, Lake(tmp_path, port=LocalPort("many")), monkeypatch, drawn, days=4)
