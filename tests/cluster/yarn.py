"""Hadoop's own mini cluster: YARN's real daemons in one process, containers as processes of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pytest

from airflow_gddl.contract.errors import FatalError
from spark_jobs.spark import jars
from tests.cluster.standalone import HOME, asked
from tests.harness.waiting import wait_for

NODES = 2
SOURCE = Path(__file__).with_name("YarnCluster.java")


def class_path(scratch: Path) -> list[str]:
    """JARs of the mini cluster, of the Hadoop that the installed Spark brings; skips where they can't be had."""
    version = jars.hadoop_version()
    wanted = jars.JarSet(
        name=f"hadoop-minicluster-{version}",
        what=f"Hadoop's mini cluster {version}",
        coordinates=(
            f"org.apache.hadoop:hadoop-client-minicluster:{version}",
            "org.bouncycastle:bcpkix-jdk18on:1.82",
            "org.junit.jupiter:junit-jupiter-api:5.13.4",
        ),
        excluded=("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime"),
    )
    if shutil.which("javac") is None:
        pytest.skip("the mini cluster's class is compiled by a JDK, and there is none")
    try:
        return [*jars.class_path(wanted, scratch), f"{HOME}/jars/*"]
    except FatalError as error:
        pytest.skip(str(error))


@dataclass
class YarnCluster:
    """A context manager that leaves no process. Jobs find it by `HADOOP_CONF_DIR`, which is `folder`."""

    folder: Path
    classes: list[str]
    web: int = 0
    master = "yarn"

    def __enter__(self) -> Self:
        java = Path(shutil.which("java") or "java").resolve()
        # Containers start `$JAVA_HOME/bin/java`.
        environ = {**os.environ, "CLASSPATH": os.pathsep.join(self.classes), "JAVA_HOME": str(java.parents[1])}
        with (self.folder / "yarn.log").open("wb") as out:
            self.process = subprocess.Popen(
                [str(java), "-Xmx512m", "-XX:+UseSerialGC", str(SOURCE), str(self.folder), str(NODES)],
                env=environ,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            wait_for(self._started, "YARN", 180)
            address = _settings(self.folder / "yarn-site.xml")["yarn.resourcemanager.webapp.address"]
            self.web = int(address.rpartition(":")[2])
            wait_for(lambda: self._get("metrics")["clusterMetrics"]["activeNodes"] == NODES, "the nodes")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        below = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        for each in [self.process, *below]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                each.kill()
        psutil.wait_procs(below, timeout=30)
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def conf(self) -> dict[str, Any]:
        """Settings of jobs: containers take Spark from where pip put it."""
        staging = (self.folder / "staging").as_uri()
        return {
            "spark.yarn.jars": f"local:{HOME}/jars/*",
            "spark.yarn.stagingDir": staging,
            "spark.yarn.am.memory": "384m",
            "spark.executor.heartbeatInterval": "5s",
        }

    def running(self) -> list[str]:
        """Ids of applications that have not ended."""
        found = self._get("apps?states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING")["apps"] or {}
        return [each["id"] for each in found.get("app", ())]

    def ended(self) -> dict[str, str]:
        """How applications ended, by id."""
        found = self._get("apps?states=FINISHED,FAILED,KILLED")["apps"] or {}
        return {each["id"]: each["finalStatus"] for each in found.get("app", ())}

    def driver_of(self, application: str) -> str | None:
        """URL of a driver's own page, through YARN's proxy; null while the application waits."""
        state = self._get(f"apps/{application}")["app"]["state"]
        return f"http://127.0.0.1:{self.web}/proxy/{application}" if state == "RUNNING" else None

    def executor(self, number: str) -> psutil.Process:
        """The JVM of an executor of the application that runs."""
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                said = each.cmdline()
                named = said[said.index("--executor-id") + 1] if "--executor-id" in said else None
                if named == number and Path(said[0]).name == "java":
                    return each
        raise AssertionError(f"no process of executor {number}")

    def _started(self) -> bool:
        assert self.process.poll() is None, (self.folder / "yarn.log").read_text()[-3000:]
        return (self.folder / "yarn-site.xml").exists()

    def _get(self, what: str) -> Any:
        return asked(f"http://127.0.0.1:{self.web}/ws/v1/cluster/{what}")


def _settings(path: Path) -> dict[str, str]:
    """Of a file of Hadoop's settings that this process's own child wrote."""
    found = ET.parse(path).getroot().iter("property")  # noqa: S314 - written by the cluster of this test
    return {each.findtext("name", ""): each.findtext("value", "") for each in found}
