"""A MariaDB of the tests' own, where Debian's `mariadb-server` is installed, in a folder that is removed."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tests.harness.waiting import wait_for

SERVER = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
_SECONDS = 60


@contextmanager
def mariadb(*settings: str) -> Iterator[sa.Engine]:
    """An engine on the empty database `shop`, over a socket; all of it is gone afterwards.

    Args:
        settings: further options of the server.
    """
    folder = Path(tempfile.mkdtemp(prefix="gddl-my-"))
    data, place, user = folder / "data", folder / "s", getpass.getuser()
    common = ["--no-defaults", f"--datadir={data}", f"--user={user}"]
    install = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    command = [str(SERVER), *common, f"--socket={place}", "--skip-networking", "--performance-schema=ON", *settings]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield _engine(place)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _engine(place: Path) -> sa.Engine:
    url = sa.URL.create("mysql+pymysql", "root", host="localhost", query={"unix_socket": str(place)})
    wait_for(lambda: _answers(place), "MariaDB")
    with sa.create_engine(url, poolclass=sa.pool.NullPool).begin() as connection:
        connection.execute(sa.text("CREATE DATABASE shop"))
    return sa.create_engine(url.set(database="shop"), poolclass=sa.pool.NullPool)


def _answers(place: Path) -> bool:
    """The driver leaves a socket open when nobody answers, so it is asked when somebody does."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(place)) == 0
