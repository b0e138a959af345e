"""A Spark standalone cluster on loopback: a master and workers of one core each, from the Spark that pip installed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pyspark

from devtools.standalone.home import free_port
from tests.harness.waiting import wait_for

HOME = Path(pyspark.__file__).parent
WORKERS = 2
WORKER_MIB = 1024
_ANSWER_SECONDS = 20
_DRIVER = re.compile(r'href="(http[^"]+)"[^>]*>\s*Application Detail UI')
_HEAP = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


@dataclass
class Cluster:
    """A context manager that leaves no process."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = field(default_factory=lambda: free_port(0))
    web: int = field(default_factory=lambda: free_port(0))

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.end()
            raise
        return self

    def _begin(self) -> None:
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.web)]
        self._start("master", "master.Master", place)
        wait_for(lambda: self.state()["status"] == "ALIVE", "the master")
        for number in range(WORKERS):
            self.start_worker(number)
        wait_for(lambda: self.state()["aliveworkers"] == WORKERS, "the workers")

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        for name in list(reversed(self.processes)):
            self.kill(name)

    def start_worker(self, number: int) -> None:
        """On an address of its own: Spark starts no speculative task on the host of the first."""
        host = f"127.0.0.{number + 1}"
        place = ["--host", host, "--webui-port", "0", "--work-dir", str(self.folder / f"work-{number}")]
        size = ["--cores", "1", "--memory", f"{WORKER_MIB}m"]
        self._start(f"worker-{number}", "worker.Worker", [*place, *size, self.master], host)

    def kill(self, name: str) -> None:
        """A process of the cluster with all that it started."""
        process = self.processes.pop(name)
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(process.pid).children(recursive=True)
            for each in [process, *below]:
                with suppress(psutil.NoSuchProcess, ProcessLookupError):
                    each.kill()
            psutil.wait_procs(below, timeout=30)
        process.wait()

    def kill_alone(self, name: str) -> None:
        """Only the process itself, as the system does when memory is short."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def state(self) -> dict[str, Any]:
        """What the master says of itself."""
        found: dict[str, Any] = asked(f"http://127.0.0.1:{self.web}/json/")
        return found

    def running(self) -> list[str]:
        """Ids of applications that have not ended."""
        return [application["id"] for application in self.state()["activeapps"]]

    def driver_of(self, application: str) -> str | None:
        """URL of a driver's own page, as it told the master; null while it is not known, or gone."""
        page = f"http://127.0.0.1:{self.web}/app/?appId={application}"
        with urllib.request.urlopen(page, timeout=_ANSWER_SECONDS) as answer:
            found = _DRIVER.search(answer.read().decode())
        return found[1].rstrip("/") if found else None

    def executor(self, number: str) -> tuple[str, psutil.Process]:
        """Name of the worker that runs an executor, and its JVM."""
        for name, process in self.processes.items():
            for each in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    said = each.cmdline()
                    if "--executor-id" in said and said[said.index("--executor-id") + 1] == number:
                        return name, each
        raise AssertionError(f"no process of executor {number}")

    def _start(self, name: str, program: str, arguments: list[str], host: str = "127.0.0.1") -> None:
        environ = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_JAVA_OPTS": _HEAP,
            "SPARK_LOCAL_IP": host,
        }
        environ |= {"SPARK_DAEMON_MEMORY": "192m", "SPARK_NO_DAEMONIZE": "1"}
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{program}", *arguments],
                env=environ,
                cwd=self.folder,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


def asked(url: str) -> Any:
    """
    Raises:
        OSError: there is no answer yet, or none in JSON.
    """
    with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - http on loopback
        try:
            return json.load(answer)
        except ValueError as error:
            raise ConnectionError(f"{url} answers in another form: {error}") from error
