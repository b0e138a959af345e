"""Commits of both engines exclude one another: each is put on the condition that its number is free (decision 040)."""

from __future__ import annotations

import re

import pytest

from airflow_gddl.contract.spec import EngineName
from tests.s3 import delivery
from tests.s3.conftest import Server
from tests.s3.faulty import Fault, Way
from tests.s3.job_port import JobPort

COMMIT = re.compile(r"/_delta_log/[0-9]{20}\.json")


@pytest.mark.parametrize("on", ["delta_rs", "spark"])
def test_a_number_that_is_taken_is_a_conflict_and_the_next_run_goes_on(
    on: EngineName, server: Server, way: Way
) -> None:
    place = server.place(way.endpoint)
    delivery.deliver(place, ["a"])
    port = JobPort(on, place.environ)
    # As S3 says it to the slower of two.
    way.faults = [Fault("answer", method="PUT", path="/lake/s/a/_delta_log/00000000000000000001.json", status=412,
                        code="PreconditionFailed")]  # fmt: skip
    (lost,) = port.run(delivery.job(place, ["a"]))
    assert lost.error is not None
    assert lost.error.code == "DELTA_CONFLICT", lost.error
    way.faults = []
    (done,) = port.run(delivery.job(place, ["a"], "again"))
    assert done.status == "succeeded", done.error
    assert {row["id"]: row["v"] for row in port.read(f"{place.roots.lake}/s/a")} == delivery.ROWS
    puts = {request.removeprefix("PUT ") for request in way.requests if request.startswith("PUT ")}
    commits = {path for path in puts if COMMIT.search(path)}
    assert any("/s/a__changes/" in path for path in commits)
    assert commits <= set(way.absent)
