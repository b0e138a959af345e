"""Each scenario on the engine: as written, once more with nothing new, shuffled, and all files in one run."""

from __future__ import annotations

import pytest

from tests.conftest import LocalPort
from tests.scenarios.chosen import marks
from tests.scenarios.judging import assert_run, assert_tables
from tests.scenarios.loading import load_all
from tests.scenarios.model import Scenario
from tests.scenarios.playing import Variant, fit
from tests.scenarios.stage import Stage

SCENARIOS = load_all()
# A variant is played as a whole when its first test asks for it.
pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="session")
def stage(engine: LocalPort, request: pytest.FixtureRequest) -> Stage:
    return Stage(engine, request, SCENARIOS)


def each(variant: Variant, *, as_written: bool = False) -> pytest.MarkDecorator:
    played = fit(SCENARIOS, variant)
    cases = [pytest.param(one, marks=marks(one, as_written=as_written), id=one.name) for one in played]
    return pytest.mark.parametrize("scenario", cases)


@each("plain", as_written=True)
def test_files_as_written_give_the_expected_tables(scenario: Scenario, stage: Stage) -> None:
    for number, seen in enumerate(stage.seen("plain", scenario)[:-1]):
        assert_run(scenario, number, seen)


@each("plain")
def test_again_without_new_files(scenario: Scenario, stage: Stage) -> None:
    *_, last, idle = stage.seen("plain", scenario)
    assert idle.commits == last.commits
    assert idle.columns == last.columns
    if last.result.status == "failed":
        assert idle.result.status == "failed"
        return
    assert idle.result.status in ("skipped", "succeeded"), idle.result.error
    result = idle.result
    assert (result.rows_read, result.changes_written, result.redelivered, result.quarantined) == (0, 0, 0, 0)


@pytest.mark.wide
@pytest.mark.deep_on_many
@each("shuffled")
def test_files_in_another_order_give_the_expected_tables(scenario: Scenario, stage: Stage) -> None:
    *_, last, _ = stage.seen("shuffled", scenario)
    assert last.result.status == "succeeded", last.result.error
    assert_tables(scenario.expect, last)


@pytest.mark.wide
@pytest.mark.deep_on_many
@each("one_go")
def test_files_in_one_run_give_the_expected_tables(scenario: Scenario, stage: Stage) -> None:
    last, _ = stage.seen("one_go", scenario)
    assert last.result.status == "succeeded", last.result.error
    assert_tables(scenario.expect, last)
