"""Each scenario on the engine: as written, once more with nothing new, shuffled, and all files in one run."""

from __future__ import annotations

import pytest

from tests.engine_port import EnginePort
from tests.scenarios.judging import assert_run, assert_tables
from tests.scenarios.loading import load_all
from tests.scenarios.model import Scenario
from tests.scenarios.playing import Seen, Variant, arranged, fit, play
from tests.scenarios.staging import LocalGround

SCENARIOS = load_all()
# A variant is played as a whole when its first test asks for it.
pytestmark = pytest.mark.timeout(1500)


class Stage:
    """Plays a variant when it is first asked for, and only the scenarios that were selected."""

    def __init__(self, engine: EnginePort, folders: pytest.TempPathFactory, selected: set[str]) -> None:
        self._engine = engine
        self._folders = folders
        self._selected = selected
        self._played: dict[Variant, dict[str, list[Seen]]] = {}

    def seen(self, variant: Variant, scenario: Scenario) -> list[Seen]:
        if variant not in self._played:
            chosen = [arranged(s, variant) for s in fit(SCENARIOS, variant) if s.name in self._selected]
            self._played[variant] = play(self._engine, chosen, LocalGround(self._folders.mktemp(variant)))
        return self._played[variant][scenario.name]


@pytest.fixture(scope="session")
def stage(engine: EnginePort, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Stage:
    chosen = [item.callspec.params.get("scenario") for item in request.session.items if hasattr(item, "callspec")]
    return Stage(engine, tmp_path_factory, {s.name for s in chosen if isinstance(s, Scenario)})


def each(variant: Variant) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", fit(SCENARIOS, variant), ids=str)


@each("plain")
def test_as_written(scenario: Scenario, stage: Stage) -> None:
    for number, seen in enumerate(stage.seen("plain", scenario)[:-1]):
        assert_run(scenario, number, seen)


@each("plain")
def test_once_more_with_nothing_new(scenario: Scenario, stage: Stage) -> None:
    *_, last, idle = stage.seen("plain", scenario)
    assert idle.commits == last.commits
    assert idle.columns == last.columns
    if last.result.status == "failed":
        assert idle.result.status == "failed"
        return
    assert idle.result.status in ("skipped", "succeeded"), idle.result.error
    result = idle.result
    assert (result.rows_read, result.changes_written, result.redelivered, result.quarantined) == (0, 0, 0, 0)


@each("shuffled")
def test_in_another_order(scenario: Scenario, stage: Stage) -> None:
    *_, last, _ = stage.seen("shuffled", scenario)
    assert last.result.status == "succeeded", last.result.error
    assert_tables(scenario.expect, last)


@each("one_go")
def test_in_one_go(scenario: Scenario, stage: Stage) -> None:
    last, _ = stage.seen("one_go", scenario)
    assert last.result.status == "succeeded", last.result.error
    assert_tables(scenario.expect, last)
