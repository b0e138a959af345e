"""Processes of this machine, on Linux and elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from spark_jobs.job.stop import resident_bytes
from spark_jobs.ledger import claim
from spark_jobs.ledger.claim import ProcessIdentity


@pytest.mark.parametrize("linux", [True, False], ids=["linux", "elsewhere"])
def test_dead_process_is_detected(monkeypatch: pytest.MonkeyPatch, linux: bool) -> None:
    if linux and sys.platform != "linux":
        pytest.skip("the kernel's ticks are Linux's")
    monkeypatch.setattr(claim, "is_linux", lambda: linux)
    me = ProcessIdentity.current()
    assert me.boot
    assert not me.is_known_dead(me)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        child = replace(me, pid=process.pid, started=claim._started(process.pid) or "")
        assert (child.started != "", child.is_known_dead(me)) == (True, False)
        process.kill()
        process.wait()
    assert child.is_known_dead(me)
    assert replace(me, started="1").is_known_dead(me), "the process id was used again"


def test_memory_of_a_process() -> None:
    assert resident_bytes(os.getpid()) > 1_000_000
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert resident_bytes(process.pid) == 0
