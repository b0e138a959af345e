"""Every scenario that needs no Delta table, on the memory engine: as written, and once more with nothing new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engines.memory_lake import MemoryPort
from tests.scenarios.judging import assert_run
from tests.scenarios.loading import load_all
from tests.scenarios.model import Expected, Scenario
from tests.scenarios.playing import Seen, play
from tests.scenarios.staging import LocalGround


def _tables_alone(scenario: Scenario) -> Scenario:
    """Without what is read from a Delta log."""

    def part(expected: Expected) -> Expected:
        return replace(expected, columns=None, types=None)

    runs = tuple(replace(run, expect=part(run.expect)) for run in scenario.runs)
    return replace(scenario, runs=runs, expect=part(scenario.expect))


def _is_repaired(scenario: Scenario) -> bool:
    """The engine declines a rebuild and a reload."""
    return any({"full_refresh", "reload"} & set(run.options) for run in scenario.runs)


SCENARIOS = [_tables_alone(scenario) for scenario in load_all() if not _is_repaired(scenario)]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Seen]]:
    return play(MemoryPort(), SCENARIOS, LocalGround(tmp_path_factory.mktemp("memory")))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_as_written_and_again(scenario: Scenario, played: dict[str, list[Seen]]) -> None:
    *runs, idle = played[scenario.name]
    for number, seen in enumerate(runs):
        assert_run(scenario, number, seen)
    if runs[-1].result.status != "failed":
        result = idle.result
        assert result.status in ("skipped", "succeeded"), result.error
        assert (result.rows_read, result.changes_written, result.redelivered, result.quarantined) == (0, 0, 0, 0)
