"""`gddl check` tries by a run whether jobs on serverless compute reach landing and lake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import obstore
import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.runners.databricks import jobs as saved
from airflow_gddl.runners.databricks.settings import DatabricksSettings, DatabricksTier
from airflow_gddl.runners.descriptor import RUNNERS, RunnerCheck
from devtools.fake_databricks.server import FakeServer, serving
from tests.s3.conftest import Place, Server
from tests.s3.faulty import Fault, Way

DECLARED: dict[str, Any] = {
    "wheel": "/Volumes/a.whl",
    "node_type": "i3.xlarge",
    "tiers": {"small": {"serverless": True}},
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with serving([sys.executable, "-m", "spark_jobs.main"]) as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.workspace.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", server.token)
        settings = DatabricksSettings(wheel="/Volumes/a.whl", tiers={"small": DatabricksTier(serverless=True)})
        for job in saved.jobs_of({"small": TierSpec()}, settings).values():
            server.workspace.create(job)
        yield server


def tried(place: Place) -> dict[str, partial[str]]:
    tiers = {"small": TierSpec(), "large": TierSpec(tasks="many")}
    given = RunnerCheck(
        name="databricks", declared=DECLARED, roots=place.roots, tiers=tiers, environ=place.environ, command=()
    )
    return dict(RUNNERS.load(RUNNERS.get("databricks").check)(given))


def left(place: Place) -> list[str]:
    return [item["path"] for chunk in obstore.list(place.store, "lake") for item in chunk]


def test_a_run_that_reaches_landing_and_lake(fake: FakeServer, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.environ.items():  # of the job's machine
        monkeypatch.setenv(name, value)
    probes = tried(place)
    assert list(probes) == ["serverless tier small"], "job clusters have an instance profile"
    assert "wrote, read and removed a file of the lake" in probes["serverless tier small"]()
    assert left(place) == []
    assert fake.workspace.started == 1


def test_a_run_without_credentials_is_refused(fake: FakeServer, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**place.environ, "AWS_SECRET_ACCESS_KEY": "wrong"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FatalError, match=r"ROOT_UNUSABLE.*S3_CREDENTIALS_REFUSED.*instance_profile"):
        tried(place)["serverless tier small"]()
    assert left(place) == []
    assert fake.workspace.started == 1


def test_a_run_that_may_not_write_is_refused(
    fake: FakeServer, server: Server, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its credentials read the lake, and can't write it."""
    place = server.place()
    for name, value in {**place.environ, "AWS_ENDPOINT_URL": way.endpoint}.items():
        monkeypatch.setenv(name, value)
    way.faults = [Fault("answer", method="PUT", status=403, code="AccessDenied")]
    with pytest.raises(FatalError, match=r"ROOT_UNUSABLE.*STORAGE_DENIED"):
        tried(place)["serverless tier small"]()
    assert left(place) == []
    assert fake.workspace.started == 1
