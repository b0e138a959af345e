"""`python -m devtools.demo`: what `gddl demo` shows, in an Airflow of this machine, whose UI stays up until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.cli import context, metadata
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.init import DemoFolder
from airflow_gddl.cli.screen import duration
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.java import find_java
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runners.child import Stopped, stoppable
from airflow_gddl.runtime.state.recording import read_records
from airflow_gddl.tools.simulate.simulation import DemoSource, Ending, SourceOptions, verify
from airflow_gddl.tools.simulate.table import differences, read_replica
from airflow_gddl.topology.pipelines import pools
from devtools.standalone.home import Home, HomeSettings, free_port
from devtools.standalone.runs import Runs
from devtools.standalone.supervisor import Standalone, StartRequest

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

_NEWEST_RUNS = 50
_TABLE = "nyc.flights"
_DAG = f"gddl.{_TABLE}"
_OPTIONS = {"poll_seconds": "2", "retry_delay_seconds": "5"}


@dataclass(frozen=True, kw_only=True)
class AirflowDemonstration:
    """Options of the demo.

    Attributes:
        project: folder whose `dags` and `metadata` are used; null: the demo writes its own.
        port: preferred port of the UI.
        stay: keep Airflow up until Ctrl-C.
    """

    cli: CliContext
    place: DemoFolder
    source: SourceOptions
    project: Path | None
    port: int
    stay: bool

    def run(self) -> int:
        """Exit status: 0 when every run succeeded and every replica equals its source.

        Raises:
            GddlError: the demo could not start or continue.
        """
        find_java(self.cli.environ)
        shown = False
        try:
            with stoppable(), Standalone(self._start_request()) as airflow:
                right = self._show(airflow)
                shown = True
                if self.stay:
                    self._stay(airflow)
                self._say("stopping")
        except Stopped as stopped:
            if not shown:
                return 128 + stopped.number
        return context.OK if right else context.FAILED

    def _show(self, airflow: Standalone) -> bool:
        begun = time.monotonic()
        airflow.take_over()
        self.place.begin()
        if self.project is None:
            self.place.write_project()
        cli = self.cli.apart(**self._roots())
        loaded = metadata.read(cli, self._metadata)
        self._say(f"starting Airflow in {self.place.airflow}")
        airflow.begin()
        source = DemoSource(self.source)
        self._say(source.land(0))
        airflow.start()
        airflow.wait_ready()
        self._say(f"Airflow is up at {airflow.rest.url} after {duration(time.monotonic() - begun)}")
        self._rounds(airflow, source, loaded)
        right = verify(cli, self._metadata, source.tables, partial(_ending, source, loaded))
        self._say(f"that took {duration(time.monotonic() - begun)}")
        return right

    def _rounds(self, airflow: Standalone, source: DemoSource, loaded: LoadedMetadata) -> None:
        made = metadata.pipelines(self.cli, loaded)
        runs = Runs(airflow, self.cli.screen.say)
        runs.create_pools(pools(made))
        runs.wait_for([pipeline.dag_id for pipeline in made])
        runs.finish([runs.first(pipeline.dag_id) for pipeline in made])
        self._say("the first round succeeded")
        for number in range(1, self.source.rounds + 1):
            self._say(source.land(number))
            runs.finish([runs.trigger(pipeline.dag_id) for pipeline in made])

    def _stay(self, airflow: Standalone) -> None:
        for line in _next_steps(airflow.rest.url, self.place, self._metadata):
            self.cli.screen.dictate(line)
        try:
            while True:
                airflow.check()
                time.sleep(1)
        except Stopped:
            return

    def _start_request(self) -> StartRequest:
        settings = HomeSettings(
            dags=self.place.dags if self.project is None else self.project / "dags",
            port=free_port(self.port),
            title="airflow-gddl demo",
            more={"gddl": {**_OPTIONS, "metadata": self._metadata}},
        )
        home = Home(self.place.airflow)
        return StartRequest(home=home, settings=settings, environ=self.cli.environ, variables=self._roots())

    @property
    def _metadata(self) -> str:
        return str(self.place.metadata if self.project is None else self.project / "metadata")

    def _roots(self) -> dict[str, str]:
        return {"GDDL_LANDING": str(self.place.landing), "GDDL_LAKE": str(self.place.lake)}

    def _say(self, text: str) -> None:
        self.cli.screen.say(text, "bold")


def _ending(source: DemoSource, loaded: LoadedMetadata, verified: JobResult) -> Ending:
    spec = next(spec for spec in loaded.tables if spec.table == verified.table)
    truth = source.truth(spec.table)
    return Ending(
        verified=verified,
        runs=read_records(loaded.roots, spec.table, _NEWEST_RUNS).results[::-1],
        truth_rows=truth.num_rows,
        differences=differences(truth, read_replica(Path(Layout.of(loaded.roots, spec).replica)), spec.keys),
    )


def _next_steps(url: str, place: DemoFolder, metadata: str) -> list[str]:
    """Lines with commands for copying."""
    body = json.dumps({"logical_date": None, "conf": {"action": "rebuild"}})
    replica = place.lake.joinpath(*_TABLE.split("."))
    return [
        "",
        f"The UI is at {url}; no user, no password: it listens on this machine alone. Try:",
        f"- Rerun a table: {url}/dags/{_DAG}, Trigger, Rebuild; of a pack, name the tables.",
        "- The same over REST:",
        f'  TOKEN=$(curl -s {url}/auth/token | sed \'s/.*access_token":"//; s/".*//\')',
        f'  curl -s {url}/api/v2/dags/{_DAG}/dagRuns -H "Authorization: Bearer $TOKEN" \\',
        f"    -H 'Content-Type: application/json' -d '{body}'",
        f"- Change {metadata}/tables/nyc.yaml: add, disable or break a metadata row. The UI shows it soon.",
        f"- Read a table: {replica} is Delta; beside it stand its __changes and __errors.",
        f"- Airflow's own command: AIRFLOW_HOME={place.airflow} airflow dags list",
        "Ctrl-C stops it.",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: as `AirflowDemonstration.run`, 2 for wrong arguments and for what can't be started."""
    cli, given = context.real(), _parser().parse_args(arguments)
    place = DemoFolder(given.dir.absolute())
    source = SourceOptions(
        landing=place.landing, scale=given.scale, rounds=given.rounds, seed=given.seed, now=cli.now()
    )
    project = None if given.project is None else given.project.absolute()
    stay = not given.check
    shown = AirflowDemonstration(cli=cli, place=place, source=source, project=project, port=given.port, stay=stay)
    try:
        return shown.run()
    except GddlError as error:
        cli.screen.warn(str(error), "red")
        return context.of_error(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devtools.demo", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("demo"), help="folder for metadata, landing, lake and Airflow")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows of each table, above 0 to 1")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of changes after the full load")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random changes")
    parser.add_argument("--check", action="store_true", help="end with the verdict as exit status")
    parser.add_argument("--project", type=Path, help="use dags/ and metadata/ of this folder")
    parser.add_argument("--port", type=int, default=8080, help="port of the UI, if free")
    return parser


if __name__ == "__main__":
    sys.exit(main())
