"""Grounds of checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gddl.tools.platform_check import job_checks
from tests.harness.s3_server import Bucket, serving
from tests.platform_check.ground import Ground
from tests.s3.conftest import Server, server, way

__all__ = ["server", "way"]
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_checks, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(job_checks, "CLAIM_SECONDS", 0.0)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def bucket_ground(tmp_path: Path, server: Server) -> Ground:
    """A fresh bucket of versitygw."""
    place = server.place()
    return Ground(tmp_path, f"s3://{place.name}", place.environ)


@pytest.fixture
def open_ground(tmp_path: Path) -> Iterator[Ground]:
    """A bucket whose server asks nobody who they are."""
    with serving(Bucket()) as url:
        yield Ground(tmp_path, "s3://bucket", {"AWS_ENDPOINT_URL": url, **KEYS})
