"""AIRFLOW_HOME of a standalone Airflow: configuration, database, logs."""

from __future__ import annotations

import base64
import secrets
import shutil
import socket
import sqlite3
from collections.abc import Mapping
from configparser import RawConfigParser
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
_SQLITE = Path(__file__).with_name("gddl_sqlite.py")


def free_port(wanted: int) -> int:
    """The wanted port, or another one when it is taken."""
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # Connections of a stopped server may be in TIME_WAIT.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port on {HOST}")


def prepare(database: Path) -> None:
    """Make the file, with a write-ahead log; that is kept in the file itself."""
    connection = sqlite3.connect(database)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


Sections = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class HomeSettings:
    """Options of a standalone Airflow.

    Attributes:
        dags: folder of the DAG files.
        port: of the UI and the REST API, on loopback.
        parallelism: tasks at once. Each may run Spark, and SQLite supports few writers.
        title: shown in the UI.
        more: Airflow options by section, on top of these.
    """

    dags: Path
    port: int
    parallelism: int = 2
    title: str = "airflow-gddl"
    more: Sections = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@dataclass(frozen=True)
class Home:
    """`root` is an absolute path."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "airflow.db"

    @property
    def logs(self) -> Path:
        return self.root / "logs" / "parts"

    def write(self, settings: HomeSettings) -> None:
        """Configuration and an empty database. Secrets are new each time: the file is for its owner alone."""
        self.logs.mkdir(parents=True, exist_ok=True)
        config = RawConfigParser()
        for sections in (_sections(self, settings), settings.more):
            for section, options in sections.items():
                if not config.has_section(section):
                    config.add_section(section)
                for option, value in options.items():
                    config.set(section, option, value.replace("%", "%%"))
        # Airflow imports modules of this folder; this package it can't, where it is not installed editable.
        (self.root / "config").mkdir(exist_ok=True)
        shutil.copy(_SQLITE, self.root / "config")
        path = self.root / "airflow.cfg"
        path.touch(mode=0o600)
        with path.open("w", encoding="utf-8") as file:
            config.write(file)
        prepare(self.database)


def _sections(home: Home, settings: HomeSettings) -> Sections:
    return {
        "core": {
            "dags_folder": str(settings.dags),
            "executor": "LocalExecutor",
            "parallelism": str(settings.parallelism),
            "load_examples": "False",
            "dags_are_paused_at_creation": "False",
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            # All local users are admins; it contains only the demo.
            "simple_auth_manager_all_admins": "True",
            "execution_api_server_url": f"{settings.url}/execution/",
            "hostname_callable": "socket.gethostname",
            "min_serialized_dag_update_interval": "5",
        },
        "database": {
            "sql_alchemy_conn": f"sqlite:///{home.database}",
            "sql_alchemy_connect_args": f"{_SQLITE.stem}.SYNC",
            "sql_alchemy_connect_args_async": f"{_SQLITE.stem}.ASYNC",
            "load_default_connections": "False",
        },
        "api": {
            "host": HOST,
            "port": str(settings.port),
            "base_url": settings.url,
            "workers": "1",
            "secret_key": secrets.token_hex(16),
            "instance_name": settings.title,
        },
        "api_auth": {"jwt_secret": secrets.token_hex(32)},
        "workers": {"execution_api_timeout": "30"},
        "logging": {"base_log_folder": str(home.root / "logs")},
        "usage_data_collection": {"enabled": "False"},
        # Poll intervals: edited rows appear soon, without a high load on a machine of two cores.
        "scheduler": {"task_instance_heartbeat_timeout": "60", "parsing_cleanup_interval": "20"},
        "dag_processor": {
            "parsing_processes": "1",
            "min_file_process_interval": "10",
            "refresh_interval": "30",
            "stale_dag_threshold": "15",
        },
    }
