"""What `tests.harness.lanes` names is there."""

from __future__ import annotations

from pathlib import Path

from tests.harness import lanes

TESTS = Path(__file__).parents[1]


def test_lanes_name_modules_and_tests_that_exist() -> None:
    modules = {path.stem for path in TESTS.rglob("test_*.py")}
    assert set(lanes._WIDE) <= modules
    for named in (*lanes._ROOMS, *lanes._ROOMS_NOT):
        path, _, test = named.partition("::")
        assert (TESTS / path).exists(), named
        assert f"def {test.partition('[')[0]}" in (TESTS / path).read_text() if test else True, named


def test_scenarios_on_spark_are_among_those_of_each_change() -> None:
    assert set(lanes._ON_SPARK_AT_LEAST) <= set(lanes.ON_SPARK)
