"""Debezium's PostgreSQL connector in a standalone Kafka Connect, of JARs from Maven Central."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from tests.kafka.broker import KAFKA, Broker, fetched, java_command, started
from tests.s3.gateway import free_port, wait_for_port

DEBEZIUM = "3.0.8.Final"


@contextmanager
def relayed(engine: sa.Engine) -> Iterator[int]:
    """A loopback port of the tests' PostgreSQL, which listens on a Unix socket alone, where Java can't reach it."""
    path = f"{engine.url.query['host']}/.s.PGSQL.5432"
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(server, path), daemon=True).start()
    yield server.getsockname()[1]
    with suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    server.close()


def _accept(server: socket.socket, path: str) -> None:
    with suppress(OSError):  # closed
        while True:
            client, _ = server.accept()
            behind = socket.socket(socket.AF_UNIX)
            behind.connect(path)
            for pair in ((client, behind), (behind, client)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@dataclass
class Connect:
    """A worker with one connector, which can be killed and started again.

    Attributes:
        database: port of the source.
        settings: of the connector, beside those of any.
    """

    root: Path
    broker: Broker
    database: int
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        worker, connector = self.root / "worker.properties", self.root / "connector.json"
        worker.write_text("".join(f"{name}={value}\n" for name, value in self._worker().items()))
        connector.write_text(json.dumps({"name": "crm", "config": self._connector()}))
        jars = [fetched("connect-runtime", KAFKA)]
        jars.append(fetched("debezium-connector-postgres", DEBEZIUM, "io.debezium"))
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = java_command(":".join(f"{one}/*" for one in jars), main, str(worker), str(connector))
        self._process = started(command, self.root / "connect.log")
        wait_for_port(self._process, f"127.0.0.1:{self.port}", self.root / "connect.log")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _worker(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.broker.address,
            "listeners": f"http://127.0.0.1:{self.port}",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": str(self.root / "offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.discovery": "only_scan",
        }

    def _connector(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.database),
            "database.user": "postgres",
            "database.password": "postgres",
            "database.dbname": "postgres",
            "topic.prefix": "crm",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "2",
            **self.settings,
        }
