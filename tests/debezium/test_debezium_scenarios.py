"""The scenarios once more, as Debezium's files: every rule that has a counterpart holds for them too."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from tests.conftest import LocalPort
from tests.debezium.rendering import WITHOUT, DebeziumGround, rendered
from tests.scenarios.judging import assert_counts, assert_run, assert_tables
from tests.scenarios.loading import load_all
from tests.scenarios.model import Scenario
from tests.scenarios.playing import Seen, Variant, fit
from tests.scenarios.stage import Stage

ORIGINS = {scenario.name: scenario for scenario in load_all()}
SCENARIOS = rendered(ORIGINS.values())
pytestmark = [pytest.mark.deep_on_many, pytest.mark.timeout(1500)]


@pytest.fixture(scope="session")
def debezium(engine: LocalPort, request: pytest.FixtureRequest) -> Stage:
    return Stage(engine, request, SCENARIOS, DebeziumGround)


def each(variant: Variant) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", fit(SCENARIOS, variant), ids=str)


def test_scenarios_without_a_counterpart_are_of_dms() -> None:
    assert len(SCENARIOS) >= 120
    left = set(ORIGINS) - {scenario.name for scenario in SCENARIOS}
    assert [start for start in WITHOUT if not any(name.startswith(start) for name in left)] == []


@each("plain")
def test_files_as_written_give_the_expected_tables(scenario: Scenario, debezium: Stage) -> None:
    for number, seen in enumerate(debezium.seen("plain", scenario)[:-1]):
        assert_run(scenario, number, _without_technical(seen))
        assert_counts(ORIGINS[scenario.name], number, seen.result)


@each("plain")
def test_again_without_new_files(scenario: Scenario, debezium: Stage) -> None:
    *_, last, idle = debezium.seen("plain", scenario)
    assert (idle.commits, idle.columns) == (last.commits, last.columns)
    assert (idle.result.rows_read, idle.result.changes_written, idle.result.quarantined) == (0, 0, 0)


@pytest.mark.wide
@each("shuffled")
def test_files_in_another_order_give_the_expected_tables(scenario: Scenario, debezium: Stage) -> None:
    *_, last, _ = debezium.seen("shuffled", scenario)
    assert last.result.status == "succeeded", last.result.error
    assert_tables(scenario.expect, _without_technical(last))


@pytest.mark.wide
@each("one_go")
def test_files_in_one_run_give_the_expected_tables(scenario: Scenario, debezium: Stage) -> None:
    last, _ = debezium.seen("one_go", scenario)
    assert last.result.status == "succeeded", last.result.error
    assert_tables(scenario.expect, _without_technical(last))


def _without_technical(seen: Seen) -> Seen:
    columns = {name: kind for name, kind in seen.columns.items() if not name.startswith("_dbz_")}
    return cast("Seen", replace(seen, columns=columns))
