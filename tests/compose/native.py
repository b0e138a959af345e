"""The services of the compose file as processes of this machine: their own commands and environments, other places."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from devtools.standalone.home import free_port
from tests.compose.arrangement import ROOT, Service, example, services
from tests.harness.waiting import wait_for

SECONDS = 600
DATABASE_USER = "postgres"
_PORTS = ("postgres:5432", "api-server:8080", "spark-master:7077", "spark-master:8081", "spark-worker:8082")
_PORTS += ("s3:7070", "scheduler:8974", "logs:8793", "triggerer-logs:8794")


def server_programs() -> Path | None:
    """Folder of PostgreSQL's programs; null when it isn't installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(p) for p in [shutil.which("initdb")] if p]
    return found[-1].parent if found else None


def s3_program() -> str | None:
    """The S3 server of the image; null when it isn't here."""
    return shutil.which("versitygw") or shutil.which("versitygw", path=str(Path.home() / ".cache/airflow-gddl/bin"))


@dataclass
class Native:
    """A context manager; leaving it ends all that it started.

    Attributes:
        roots: `GDDL_LANDING` and `GDDL_LAKE`, in the words of `.env`.
    """

    root: Path
    roots: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    scratch: list[Path] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port(0) for name in _PORTS})

    def __post_init__(self) -> None:
        self.services = services({**example(), **self.roots})
        for name in ("buckets", "data", "passwords", "logs", "cache", "work", "plugins"):
            (self.root / name).mkdir()
        if not any(point.name == "gddl" for point in entry_points(group="airflow.plugins")):
            # An editable install may be older than the entry point that the image's own has.
            (self.root / "plugins" / "pools.py").write_text("from airflow_gddl.plugins.pools import GddlPlugin\n")
        shutil.copytree(ROOT / "metadata", self.root / "metadata")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        left = [psutil.Process(process.pid) for process in self.running.values() if process.poll() is None]
        everything = [each for process in left for each in [*process.children(recursive=True), process]]
        for each in everything:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(everything, timeout=30)
        for process in self.running.values():
            process.wait()
        for folder in self.scratch:
            shutil.rmtree(folder, ignore_errors=True)

    def here(self, text: str) -> str:
        """A text of the file with this machine's places in it."""
        places = {
            "/opt/airflow/dags": ROOT / "dags",
            "/opt/airflow/metadata": self.root / "metadata",
            "/opt/airflow/passwords": self.root / "passwords",
            "/tmp/gddl": self.root / "cache",  # noqa: S108 - the container's
            "/tmp/work": self.root / "work",  # noqa: S108 - the container's
            "/data/": f"{self.root}/data/",
            "/buckets": self.root / "buckets",
        }
        for name, port in self.ports.items():
            text = text.replace(name, f"127.0.0.1:{port}")
            text = text.replace(f"127.0.0.1:{name.partition(':')[2]}/", f"127.0.0.1:{port}/")
        for there, place in places.items():
            text = text.replace(there, str(place))
        numbers = {name.partition(":")[2]: str(port) for name, port in self.ports.items()}
        numbers |= {":7070": f":{numbers['7070']}"}
        return {"spark-master": "127.0.0.1", **numbers}.get(text, text)

    def environ(self, service: Service) -> dict[str, str]:
        """The service's own, and what only says where on this machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "GDDL_", "AWS_"))}
        return {
            **kept,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "NO_PROXY": "127.0.0.1,localhost",
            "HOSTNAME": socket.gethostname(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "AIRFLOW_HOME": str(self.root / "airflow"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.root / "plugins"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.ports["api-server:8080"]),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.root / "logs"),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self.ports["logs:8793"]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self.ports["triggerer-logs:8794"]),
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(self.ports["scheduler:8974"]),
            **{name: self.here(value) for name, value in service.environ.items()},
        }

    def start(self, name: str, *more: str, program: str | None = None) -> None:
        """Start a service; `program`: what its image starts, where the file leaves that to the image."""
        service = self.services[name]
        command = [*([program] if program else []), *map(self.here, service.command), *more]
        self._spawn(name, command, self.environ(service))

    def finish(self, name: str, *more: str) -> None:
        """Start a service that ends by itself, and wait for that."""
        self.start(name, *more)
        status = self.running[name].wait(timeout=SECONDS)
        assert status == 0, self.log(name)

    def healthy(self, name: str) -> None:
        """Wait until the service's own health check is content."""
        kind, *command = self.services[name].settings["healthcheck"]["test"]
        command = ["sh", "-c", *command] if kind == "CMD-SHELL" else command
        environ = self.environ(self.services[name])
        checked = [self.here(part) for part in command]

        def passes() -> bool:
            assert self.running[name].poll() is None, self.log(name)
            return (
                subprocess.run(checked, env=environ, capture_output=True, check=False, timeout=SECONDS).returncode == 0
            )

        wait_for(passes, f"{name} to be healthy")

    def log(self, name: str) -> str:
        return f"{name}:\n" + (self.root / f"{name}.log").read_text(errors="replace")[-4000:]

    def database(self, programs: Path) -> None:
        """What the image's entry point does: a new database with the user and password of the environment."""
        own = self.services["postgres"].environ
        user = DATABASE_USER if os.geteuid() == 0 else None  # it refuses to run as root
        folder = Path(tempfile.mkdtemp(prefix="gddl-postgres-", dir="/tmp"))
        self.scratch.append(folder)
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        secret = folder / "password"
        secret.write_text(own["POSTGRES_PASSWORD"])
        secret.chmod(0o644)
        settings = ["-U", own["POSTGRES_USER"], "--pwfile", str(secret), "-A", "scram-sha-256", "-E", "UTF8"]
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", *settings], check=True, capture_output=True, user=user
        )
        place = ["-h", "127.0.0.1", "-p", str(self.ports["postgres:5432"]), "-k", str(folder)]
        self._spawn(
            "postgres", [str(programs / "postgres"), "-D", str(folder / "data"), *place], dict(os.environ), user
        )
        address = [str(programs / "psql"), "-h", "127.0.0.1", "-p", str(self.ports["postgres:5432"])]
        address += ["-U", own["POSTGRES_USER"], "-d", "postgres"]
        secrets = {**os.environ, "PGPASSWORD": own["POSTGRES_PASSWORD"]}

        def made() -> bool:
            made = [*address, "-c", f"create database {own['POSTGRES_DB']}"]
            return subprocess.run(made, env=secrets, capture_output=True, check=False).returncode == 0

        wait_for(made, "the database")

    def _spawn(self, name: str, command: list[str], environ: dict[str, str], user: str | None = None) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                env=environ,
                cwd="/" if user else self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
            )
