"""The scenarios once more, as flat events (`ExtractNewRecordState`): they say what the events said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import LocalPort
from tests.debezium.flattening import FlatGround
from tests.debezium.rendering import rendered
from tests.scenarios.judging import assert_tables
from tests.scenarios.loading import load_all
from tests.scenarios.model import Scenario
from tests.scenarios.playing import Seen, fit
from tests.scenarios.stage import Stage

SCENARIOS = rendered(load_all())
pytestmark = [pytest.mark.deep_on_many, pytest.mark.wide, pytest.mark.timeout(1500)]


@pytest.fixture(scope="session")
def flat_events(engine: LocalPort, request: pytest.FixtureRequest) -> Stage:
    return Stage(engine, request, SCENARIOS, FlatGround)


@pytest.mark.parametrize("scenario", fit(SCENARIOS, "plain"), ids=str)
def test_files_as_written_give_the_expected_tables(scenario: Scenario, flat_events: Stage) -> None:
    *_, last, idle = flat_events.seen("plain", scenario)
    _assert_tables(scenario, last)
    assert idle.commits == last.commits


@pytest.mark.parametrize("scenario", fit(SCENARIOS, "shuffled"), ids=str)
def test_files_in_another_order_give_the_expected_tables(scenario: Scenario, flat_events: Stage) -> None:
    *_, last, _ = flat_events.seen("shuffled", scenario)
    assert last.result.status == "succeeded", last.result.error
    _assert_tables(scenario, last)


def _assert_tables(scenario: Scenario, seen: Seen) -> None:
    columns = {name: kind for name, kind in seen.columns.items() if not name.startswith("_dbz_")}
    assert_tables(scenario.expect, replace(seen, columns=columns))
