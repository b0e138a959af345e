"""Put if absent, on a real server: what claims, ledger and commits stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.stores import Storage
from spark_jobs.ledger.claim import Claim
from tests.s3 import delivery
from tests.s3.conftest import Place


def test_create_if_absent_succeeds_once(place: Place) -> None:
    storages = [Storage(environ=place.environ) for _ in range(8)]
    for number in range(10):
        path = f"s3://{place.name}/race/{number}"
        with ThreadPoolExecutor(len(storages)) as pool:
            won = list(pool.map(lambda item: item[1].create(path, str(item[0]).encode()), enumerate(storages)))  # noqa: B023 - used up in this round
        assert won.count(True) == 1
        assert storages[0].read(path) == str(won.index(True)).encode()


def now() -> datetime:
    return datetime.now(UTC)


def test_claim_is_exclusive(place: Place) -> None:
    root = Layout.of(place.roots, delivery.table("a")).state
    with Claim.acquire(Storage(environ=place.environ), root, "first", now) as held:
        with pytest.raises(RetriableError, match="TABLE_BUSY"):
            Claim.acquire(Storage(environ=place.environ), root, "second", now)
        held.check()
    with Claim.acquire(Storage(environ=place.environ), root, "second", now) as held:
        held.check()


HOLDER = """
import sys, time
from datetime import UTC, datetime
from spark_jobs.ledger.claim import Claim
from airflow_gddl.stores import Storage
Claim.acquire(Storage(), sys.argv[1], "killed", lambda: datetime.now(UTC))
print("held", flush=True)
time.sleep(600)
"""


def test_claim_of_a_killed_run_is_void(place: Place) -> None:
    root = Layout.of(place.roots, delivery.table("a")).state
    environ = {**os.environ, **place.environ}
    with subprocess.Popen([sys.executable, "-c", HOLDER, root], env=environ, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RetriableError, match="TABLE_BUSY"):
            Claim.acquire(Storage(environ=place.environ), root, "next", now)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    started = time.monotonic()
    with Claim.acquire(Storage(environ=place.environ), root, "next", now, wait_seconds=5) as held:
        held.check()
    assert time.monotonic() - started < 5
