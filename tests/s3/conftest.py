"""One server for the session, a fresh bucket for each test that asks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from obstore.store import S3Store

from airflow_gddl.contract.spec import Roots
from tests.s3.faulty import Way, between
from tests.s3.gateway import Gateway, find_server, serving


@dataclass(frozen=True)
class Place:
    """A fresh bucket.

    Attributes:
        environ: what a program must be told to reach it.
        store: a client of it that meets no faults.
    """

    name: str
    environ: Mapping[str, str]
    store: S3Store

    @property
    def roots(self) -> Roots:
        return Roots(landing=f"s3://{self.name}/landing", lake=f"s3://{self.name}/lake")


@dataclass(frozen=True)
class Server:
    gateway: Gateway
    buckets: Path

    def place(self, endpoint: str | None = None) -> Place:
        """A fresh bucket, reached at this endpoint; null: at the server's own."""
        name = f"b-{secrets.token_hex(6)}"
        (self.buckets / name).mkdir()
        environ = {**self.gateway.environ, "AWS_ENDPOINT_URL": endpoint or self.gateway.endpoint}
        return Place(name, environ, self.gateway.store(name))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program = find_server()
    if program is None:
        pytest.skip("no S3 server: neither versitygw nor Go to build it with")
    root = tmp_path_factory.mktemp("s3")
    with serving(program, root) as gateway:
        yield Server(gateway, root / "buckets")


@pytest.fixture
def place(server: Server) -> Place:
    return server.place()


@pytest.fixture
def way(server: Server) -> Iterator[Way]:
    """A way to the server that bears faults; `Place`s behind it are made with its endpoint."""
    with between(server.gateway.endpoint) as way:
        yield way


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Callable[[Place], None]:
    """Have this process reach a place, as a job's own process would."""

    def set_environment(place: Place) -> None:
        for name, value in place.environ.items():
            monkeypatch.setenv(name, value)

    return set_environment
