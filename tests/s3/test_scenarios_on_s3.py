"""The scenarios with landing and lake in a bucket: the same tables, from jobs started as users start them."""

from __future__ import annotations

import pytest

from tests.harness.engine_port import EngineName
from tests.s3.conftest import Server
from tests.s3.ground import BucketGround
from tests.s3.job_port import JobPort
from tests.scenarios.judging import assert_run
from tests.scenarios.loading import load_all
from tests.scenarios.model import Scenario
from tests.scenarios.playing import Seen, play

SCENARIOS = load_all()
pytestmark = pytest.mark.timeout(1500)


IN_EACH_CHANGE = (
    "r03_tombstone",
    "r04_",
    "r05_",
    "r09_changes_again",
    "r09_files_removed",
    "r09_folder_vanished_after_loading",
    "r09_reload_of_two_files",
    "r10_file_emptied",
    "r10_full_refresh",
    "r10_rebuild_masks",
    "r10_rebuild_refused",
    "history_versions",
    "quarantine_rows",
    "dms_csv_gzip",
    "dms_types",
)
"""Beginnings of names of scenarios of files, their versions and tables; the others are of the deep lane."""
_TOGETHER = {"many": 16, "one": 1000}
"""Scenarios that share their jobs: many, for a job takes long to start, but few enough for the time of a test."""


class Stage:
    """Plays those scenarios of an engine that were selected, many at once, when the first of them is asked for."""

    def __init__(self, server: Server, folders: pytest.TempPathFactory, selected: set[tuple[str, str]]) -> None:
        self._server, self._folders, self._selected = server, folders, selected
        self._played: dict[tuple[str, str], list[Seen]] = {}

    def seen(self, engine: EngineName, scenario: Scenario) -> list[Seen]:
        if (engine, scenario.name) not in self._played:
            ground = BucketGround(self._server.place(), self._folders.mktemp("ground"))
            selected = [s for s in SCENARIOS if (engine, s.name) in self._selected]
            start = selected.index(scenario) // _TOGETHER[engine] * _TOGETHER[engine]
            wanted = selected[start : start + _TOGETHER[engine]]
            played = play(JobPort(engine, ground.place.environ), wanted, ground)
            self._played |= {(engine, name): found for name, found in played.items()}
        return self._played[engine, scenario.name]


@pytest.fixture(scope="module")
def stage(server: Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Stage:
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    selected = {(p["on"], p["scenario"].name) for p in params if "on" in p and "scenario" in p}
    return Stage(server, tmp_path_factory, selected)


def each(engine: EngineName) -> list[object]:
    # Each request through Spark's own way to S3 costs, and a table takes some hundred; what is Spark's own there is in
    # the other modules of this folder.
    return [
        pytest.param(
            engine,
            scenario,
            id=f"{engine}-{scenario}",
            marks=() if engine == "one" and scenario.name.startswith(IN_EACH_CHANGE) else pytest.mark.deep,
        )
        for scenario in SCENARIOS
    ]


@pytest.mark.parametrize(("on", "scenario"), [*each("one"), *each("many")])
def test_files_as_written_give_the_expected_tables(on: EngineName, scenario: Scenario, stage: Stage) -> None:
    for number, seen in enumerate(stage.seen(on, scenario)[:-1]):
        assert_run(scenario, number, seen)
    *_, last, idle = stage.seen(on, scenario)
    assert idle.commits == last.commits
    assert idle.result.rows_read == 0
