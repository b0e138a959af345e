"""A metadata folder whose jobs run on a cluster, and `gddl run` on it in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.packages import LEAVES_SPARK_OUT
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.tools.bundle import Target, here, link_python, write_tar
from spark_jobs.batch.runtime import utc_now
from spark_jobs.ledger.claim import Claim
from tests.cluster.standalone import Cluster, asked
from tests.harness.landing import write
from tests.harness.waiting import wait_for

ROOT = Path(__file__).parents[2]
SECONDS = 400
WAIT_SECONDS = 200
"""How long a run waits for a table that is held."""
AT_LAST_SECONDS = 120
"""Less than that, so that a test that sees nothing says so."""
Change = tuple[str, int, str | None]


@dataclass(frozen=True)
class Site:
    """Tables `s.<name>` of key `id` and value `v`, ordered by `seq`; those named `spark…` belong to Spark."""

    root: Path
    cluster: Cluster
    names: tuple[str, ...]
    conf: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    memory: str = "512m"

    def prepare(self) -> None:
        own: dict[str, Any] = {"master": self.cluster.master, "driver_memory": "512m", "start_timeout": "4m"}
        own["conf"] = {**CONF, **self.conf}
        own |= self.own
        rows = [
            {
                "table": f"s.{name}",
                "keys": ["id"],
                "sequence_by": ["seq"],
                "size": "solo" if "spark" in name else "small",
            }
            for name in self.names
        ]
        small = {"cores": 1, "workers": 2, "memory": self.memory}
        settings = {
            "landing": str(self.root / "landing"),
            "lake": str(self.root / "lake"),
            "runner": "spark_submit",
            "runners": {"spark_submit": own},
            "tiers": {"small": small, "solo": {**small, "tasks": "many", "tables_per_job": 1}},
        }
        (self.root / "metadata" / "tables").mkdir(parents=True)
        (self.root / "metadata" / "gddl.yaml").write_text(json.dumps(settings))
        (self.root / "metadata" / "tables" / "s.json").write_text(json.dumps({"source": "s", "tables": rows}))

    @property
    def small(self) -> list[str]:
        return [name for name in self.names if "spark" not in name]

    def at_work(self) -> list[str]:
        """Ids of executors with a task that runs, as the driver sees them; none while there is no driver."""
        for application in self.cluster.running():
            if (url := self.cluster.driver_of(application)) is not None:
                return [
                    each["id"]
                    for each in asked(f"{url}/api/v1/applications/{application}/executors")
                    if each["activeTasks"]
                ]
        return []

    def layout(self, name: str) -> Layout:
        roots = Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))
        return Layout.of(roots, TableSpec(table=f"s.{name}", keys=("id",)))

    def load(self, names: Iterable[str], rows: int = 3) -> None:
        table = pa.table({"id": pa.array(range(rows), pa.int32()), "v": [f"load {i}" for i in range(rows)]})
        for name in names:
            write(Path(self.layout(name).landing), "LOAD00000001.parquet", table)

    def change(self, names: Iterable[str], number: int, rows: Sequence[Change]) -> None:
        columns = {
            "Op": [row[0] for row in rows],
            "seq": [100 * number + i for i in range(len(rows))],
            "id": pa.array([row[1] for row in rows], pa.int32()),
            "v": pa.array([row[2] for row in rows], pa.string()),
        }
        for name in names:
            write(Path(self.layout(name).landing), f"20240101-{number:09d}.parquet", pa.table(columns))

    def rows(self, name: str, part: str = "replica") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pa.table(DeltaTable(getattr(self.layout(name), part)).scan()).to_pylist()
        return found

    def replica(self, name: str) -> dict[int, str]:
        return {row["id"]: row["v"] for row in self.rows(name)}

    def changes(self, name: str) -> list[tuple[str, int]]:
        """Operation and key of each change that was kept."""
        return sorted((row["_gddl"]["op"], row["id"]) for row in self.rows(name, "changes"))

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """A run of somebody else holds the table meanwhile, so that a task that comes to it waits."""
        with Claim.acquire(Storage(), self.layout(name).state, "held by the test", utc_now):
            yield

    @contextmanager
    def run(self, *more: str) -> Iterator[Run]:
        """`gddl run` on all tables; whatever is left of it at the end is killed."""
        command = [sys.executable, "-m", "airflow_gddl.cli.main", "run", "--json", "--wait", str(WAIT_SECONDS)]
        own = {name: value for name, value in os.environ.items() if name != LEAVES_SPARK_OUT}
        environ = {**own, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        process = subprocess.Popen(
            [*command, "--metadata", str(self.root / "metadata"), *more],
            env=environ,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Run(self, process)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()


# The driver's page takes a port that is free when it starts: one that was chosen before may be another's by then, and
# Spark goes on with the next one without a word.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.network.timeout": "60s",
    "spark.ui.port": "0",
}


@dataclass(frozen=True)
class Run:
    site: Site
    process: subprocess.Popen[str]

    def end(self) -> tuple[int, dict[str, dict[str, Any]], str]:
        """Exit status, results by table without the schema, and what was said on standard error."""
        out, err = self.process.communicate(timeout=SECONDS)
        results = [json.loads(line) for line in out.splitlines()]
        return self.process.returncode, {r["table"].removeprefix("s."): r for r in results}, err

    def succeed(self) -> dict[str, dict[str, Any]]:
        status, results, said = self.end()
        assert status == 0, said + json.dumps(results, indent=1)
        return results

    def wait_at_last(self, tasks: int = 1, but: Iterable[str] = ()) -> list[str]:
        """Executors whose tasks are at the last table that is left, but for those named; so many of them."""
        found: list[str] = []

        def done() -> int:
            assert self.process.poll() is None, self.end()
            return len(list((self.site.root / "lake" / "_gddl" / "jobs").glob("*/*.json")))

        def there() -> bool:
            assert self.process.poll() is None, self.end()
            found[:] = [name for name in self.site.at_work() if name not in but]
            return len(found) == tasks

        wait_for(lambda: done() == len(self.site.small) - 1, "all tables but the last", SECONDS)
        wait_for(there, f"{tasks} tasks at the last table", AT_LAST_SECONDS)
        return found

    def job(self) -> psutil.Process:
        """The driver."""
        (found,) = [p for p in psutil.Process(self.process.pid).children() if "spark_jobs.main" in p.cmdline()]
        return found

    def stop(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def packed_environment(folder: Path) -> Path:
    """What `gddl bundle` packs, but that its libraries are a pointer to those of this environment."""
    root = folder / "packed"
    site = root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (site / "here.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    link_python(root, Target(python=here()))
    return write_tar(folder / "environment.tar.gz", root)
