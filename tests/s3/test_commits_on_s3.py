"""Commits of both engines exclude one another: each is put on the condition that its number is free (decision 040)."""

from __future__ import annotations

import re

import obstore
import pytest

from airflow_gddl.contract.spec import EngineName
from tests.s3 import delivery
from tests.s3.conftest import Server
from tests.s3.faulty import Fault, Way
from tests.s3.job_port import JobPort

COMMIT = re.compile(r"/_delta_log/[0-9]{20}\.json")
FIRST = "lake/s/a/_delta_log/00000000000000000001.json"
OTHERS = b'{"commitInfo":{"timestamp":1700000000000,"operation":"WRITE","operationParameters":{}}}\n'


@pytest.mark.parametrize("on", ["delta_rs", "spark"])
def test_conflicting_commit_overwrites_nothing(on: EngineName, server: Server, way: Way) -> None:
    place = server.place(way.endpoint)
    delivery.deliver(place, ["a"])
    port = JobPort(on, place.environ)
    overtake = Fault("slow", method="PUT", path=FIRST, times=1, before=lambda: obstore.put(place.store, FIRST, OTHERS))
    way.faults = [overtake]
    (result,) = port.run(delivery.job(place, ["a"]))
    assert overtake.met == 1
    assert bytes(obstore.get(place.store, FIRST).bytes()) == OTHERS
    # Delta for Spark looks what the other did, and takes the next number; the other engine leaves it to the next run.
    assert result.error is None or result.error.code == "DELTA_CONFLICT", result.error
    assert result.engine == on
    (done,) = port.run(delivery.job(place, ["a"], "again"))
    assert done.status in ("succeeded", "skipped"), done.error
    assert {row["id"]: row["v"] for row in port.read(f"{place.roots.lake}/s/a")} == delivery.ROWS
    puts = {request.removeprefix("PUT ") for request in way.requests if request.startswith("PUT ")}
    commits = {path for path in puts if COMMIT.search(path)}
    assert any("/s/a__changes/" in path for path in commits)
    assert commits <= set(way.absent)
