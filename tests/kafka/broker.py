"""A real Kafka: a broker in KRaft mode on a loopback port, of JARs from Maven Central."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.s3.gateway import end_with_parent, free_port, wait_for_port

KAFKA = "3.9.1"
JARS = Path(os.environ.get("GDDL_TOOLS", str(Path.home() / ".cache" / "airflow-gddl" / "bin"))).parent
"""Folders of JARs, beside those that the embedded Spark has fetched."""
_IVY = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>"""
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
# The least that Java needs to start soon; a broker of tests has little to do.
JAVA = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def fetched(artifact: str, version: str, group: str = "org.apache.kafka") -> Path:
    """The folder with an artifact's JARs and what they need; they are fetched once, by the Ivy that Spark brings."""
    folder = JARS / f"{artifact}-{version}"
    JARS.mkdir(parents=True, exist_ok=True)
    with (JARS / f".{artifact}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching them just now
        if not folder.exists():
            _fetch(folder, group, artifact, version)
    return folder


def _fetch(folder: Path, group: str, artifact: str, version: str) -> None:
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    staged = folder.with_suffix(".part")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    settings = staged / "ivysettings.xml"
    settings.write_text(_IVY)
    command = ["java", "-jar", str(ivy), "-settings", str(settings), "-cache", str(staged / "cache")]
    command += ["-dependency", group, artifact, version, "-confs", "default"]
    command += ["-retrieve", f"{staged}/[artifact]-[revision].[ext]", "-types", "jar", "bundle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{artifact} could not be fetched: {done.stdout[-2000:]}")
    shutil.rmtree(staged / "cache")
    staged.rename(folder)


@dataclass
class Broker:
    """A broker that can be killed and started again on its data.

    Attributes:
        root: of its data, settings and log.
        port: of its clients.
        settings: of its own, beside those of a single broker.
    """

    root: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    controller: int = field(default_factory=free_port)
    sasl_port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_address(self) -> str:
        """Of the listener that asks for a user and a password: `gddl` and `right`."""
        return f"127.0.0.1:{self.sasl_port}"

    def start(self) -> None:
        settings = self.root / "server.properties"
        if not settings.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            settings.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
            identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            cluster = f"--cluster-id={identity}"  # one of 64 begins with `-`, which is an option as a word of its own
            formatted = self._java("kafka.tools.StorageTool", "format", cluster, "--config", str(settings))
            formatted.check_returncode()
        command = java_command(f"{fetched('kafka_2.13', KAFKA)}/*", "kafka.Kafka", str(settings))
        self._process = started(command, self.root / "server.log")
        wait_for_port(self._process, self.address, self.root / "server.log")

    def kill(self) -> None:
        """SIGKILL, as a machine that is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _java(self, main: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = java_command(f"{fetched('kafka_2.13', KAFKA)}/*", main, *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def _properties(self) -> dict[str, str]:
        clients = f"PLAINTEXT://{self.address},SASL://{self.sasl_address}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": clients,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f'{_LOGIN} required user_gddl="right";',
            "log.dirs": str(self.root / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            **self.settings,
        }


def started(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """The process, whose output is added to the log; it ends with this one."""
    with log.open("a") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=end_with_parent)  # noqa: PLW1509 - as in tests/s3/gateway.py


def java_command(jars: str, main: str, *arguments: str, options: Sequence[str] = JAVA) -> list[str]:
    """
    Args:
        jars: a class path.
    """
    return ["java", *options, "-cp", jars, main, *arguments]


@contextmanager
def broker(root: Path, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A running broker, until the block ends."""
    started = Broker(root, settings or {})
    started.start()
    try:
        yield started
    finally:
        started.kill()
