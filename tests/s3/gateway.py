"""A real S3 server: versitygw on a folder, started on a loopback port."""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from obstore.store import S3Store

VERSION = "v1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
_START_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
BIN = Path(os.environ.get("GDDL_TOOLS", str(Path.home() / ".cache" / "airflow-gddl" / "bin")))
"""Where `.ci/run` puts the server, and where it is built when it isn't there."""


@dataclass(frozen=True)
class Gateway:
    """A running server.

    Attributes:
        endpoint: its URL.
        access, secret: of the one account that it has.
    """

    endpoint: str
    access: str = field(default_factory=lambda: f"test{secrets.token_hex(6)}")
    secret: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def environ(self) -> Mapping[str, str]:
        """What a program must be told to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
        }

    def store(self, bucket: str) -> S3Store:
        return S3Store(
            bucket,
            config={"endpoint": self.endpoint, "access_key_id": self.access, "secret_access_key": self.secret},
            region="us-east-1",
            client_options={"allow_http": True},
        )


def find_server() -> Path | None:
    """The server's program: on PATH, built before, or built now; null without Go, or what it needs from the network."""
    known = shutil.which("versitygw")
    if known is not None:
        return Path(known)
    BIN.mkdir(parents=True, exist_ok=True)
    built, go = BIN / "versitygw", shutil.which("go")
    with (BIN / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be building it just now
        if go is not None and not built.exists():
            subprocess.run([go, "install", _MODULE], env={**os.environ, "GOBIN": str(BIN)}, check=False, timeout=900)
    return built if built.exists() else None


@contextmanager
def serving(program: Path, root: Path) -> Iterator[Gateway]:
    """A server whose buckets are the folders in `root`, until the block ends."""
    buckets, beside, log = root / "buckets", root / "sidecar", root / "server.log"
    for folder in (buckets, beside):
        folder.mkdir(parents=True)
    gateway = Gateway(f"http://127.0.0.1:{free_port()}")
    environ = {**os.environ, "ROOT_ACCESS_KEY": gateway.access, "ROOT_SECRET_KEY": gateway.secret}
    address = gateway.endpoint.removeprefix("http://")
    # Without `--sidecar` what is known of an object is kept in extended attributes, which not every disk has.
    command = [str(program), "--port", address, "--quiet", "posix", "--sidecar", str(beside), str(buckets)]
    with running(command, address, log, env=environ):
        yield gateway


@contextmanager
def running(command: Sequence[str], address: str, log: Path, **options: Any) -> Iterator[None]:
    """A server, from when it listens until the block ends.

    Args:
        options: of `subprocess.Popen`.
    """
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=end_with_parent, **options) as process,  # noqa: PLW1509 - the tests that start it have no threads yet that matter
    ):
        try:
            wait_for_port(process, address, log)
            yield
        finally:
            process.terminate()


def end_with_parent() -> None:
    """Tests that are killed leave no server behind, where the system can see to it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
