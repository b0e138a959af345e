"""Lanes of tests: what their markers, folders and places say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.harness.lanes import Lane, lane_of

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("folder", "place", "marks", "lane"),
    [
        ("rules", None, (), "core"),
        ("rules", "one", (), "core"),
        ("rules", "many", (), "wide"),
        ("airflow", None, (), "wide"),
        ("airflow", "one", (), "wide"),
        ("rules", None, ("wide",), "wide"),
        ("airflow", None, ("core",), "core"),
        ("rules", "many", ("core",), "core"),
        ("airflow", None, ("core", "wide"), "wide"),
        ("rules", None, ("deep",), "deep"),
        ("airflow", None, ("deep", "core"), "deep"),
        ("rules", "many", ("deep_on_many", "wide"), "deep"),
        ("rules", "one", ("deep_on_many",), "core"),
        ("rules", "one", ("deep_on_many", "wide"), "wide"),
        ("spark", None, ("deep_on_many",), "wide"),
    ],
)
def test_lane_of_a_test(
    folder: str, place: str | None, marks: tuple[str, ...], lane: Lane, request: pytest.FixtureRequest
) -> None:
    module = pytest.Module.from_parent(request.session, path=TESTS / folder / "test_some.py")
    item = pytest.Function.from_parent(module, name="test_some", callobj=test_lane_of_a_test)
    item.callspec = SimpleNamespace(params={"engine": place} if place else {})  # type: ignore[assignment]  # its class is pytest's own
    for mark in marks:
        item.add_marker(mark)
    assert lane_of(item) == lane
