"""Commits of both engines exclude one another: each is put on the condition that its number is free.

Why so: docs/decisions/delta-and-ledger.md.
"""

from __future__ import annotations

import re

import obstore
import pytest

from airflow_gddl.contract.result import JobResult
from tests.harness.engine_port import EngineName
from tests.s3 import delivery
from tests.s3.conftest import Place, Server
from tests.s3.faulty import Fault, Way
from tests.s3.job_port import JobPort

COMMIT = re.compile(r"/_delta_log/[0-9]{20}\.json")
FIRST = "lake/s/a/_delta_log/00000000000000000001.json"
OTHERS = b'{"commitInfo":{"timestamp":1700000000000,"operation":"WRITE","operationParameters":{}}}\n'


@pytest.mark.core
def test_conflicting_commit_overwrites_nothing(server: Server, way: Way) -> None:
    place = server.place(way.endpoint)
    delivery.deliver(place, ["a"])
    overtake = overtaking(place)
    way.faults = [overtake]
    (result,) = JobPort("one", place.environ).run(delivery.job(place, ["a"]))
    # This engine leaves the table to the next run.
    assert_nothing_is_overwritten(place, way, overtake, result, "one")


def test_spark_overwrites_nothing_and_retries_transient_faults(server: Server, way: Way) -> None:
    """One job, for Spark takes long to start: table `a` is overtaken, `b` may not be written, `c` meets faults."""
    place, names = server.place(way.endpoint), ["a", "b", "c"]
    delivery.deliver(place, names)
    busy = Fault("answer", path="/lake/s/c/", times=4)
    broken = Fault("reset", path="/lake/s/c__changes/", times=2)
    overtake = overtaking(place)
    way.faults = [
        Fault("answer", method="PUT", path="/lake/s/b", status=403, code="AccessDenied"), busy, broken, overtake
    ]  # fmt: skip
    done = {r.table: r for r in JobPort("many", place.environ).run(delivery.job(place, names))}
    assert done["s.c"].status == "succeeded", done["s.c"].error
    assert (busy.met, broken.met) == (4, 2)
    assert done["s.b"].error is not None
    assert done["s.b"].error.code == "STORAGE_DENIED", done["s.b"].error
    # Delta for Spark looks what the other did, and takes the next number.
    assert_nothing_is_overwritten(place, way, overtake, done["s.a"], "many")


def overtaking(place: Place) -> Fault:
    """Another writer has the number of a commit that is under way."""
    return Fault("slow", method="PUT", path=FIRST, times=1, before=lambda: obstore.put(place.store, FIRST, OTHERS))


def assert_nothing_is_overwritten(place: Place, way: Way, overtake: Fault, result: JobResult, on: EngineName) -> None:
    assert overtake.met == 1
    assert bytes(obstore.get(place.store, FIRST).bytes()) == OTHERS
    assert result.error is None or result.error.code == "DELTA_CONFLICT", result.error
    assert result.tasks == on
    port = JobPort(on, place.environ)
    (done,) = port.run(delivery.job(place, ["a"], "again"))
    assert done.status in ("succeeded", "skipped"), done.error
    assert {row["id"]: row["v"] for row in port.read(f"{place.roots.lake}/s/a")} == delivery.ROWS
    puts = {request.removeprefix("PUT ") for request in way.requests if request.startswith("PUT ")}
    commits = {path for path in puts if COMMIT.search(path)}
    assert any("/s/a__changes/" in path for path in commits)
    assert commits <= set(way.absent)
