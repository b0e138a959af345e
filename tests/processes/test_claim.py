"""One holder at a time, with real processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.ledger import claim as claims
from spark_jobs.ledger.claim import Claim, ClaimDocument, ProcessIdentity
from tests.harness.waiting import wait_for

ROUNDS = 200


def clock() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "ledger")


def take(root: str, run_id: str = "run", wait_seconds: float = 0.0) -> Claim:
    return Claim.acquire(Storage(), root, run_id, clock, wait_seconds)


def numbers(root: str) -> list[int]:
    return [int(path.stem) for path in sorted(Path(root, "claims").glob("*.json"))]


def document(root: str, number: int) -> ClaimDocument:
    return codec.from_json(ClaimDocument, Path(root, "claims", f"{number:020d}.json").read_text())


def rewrite(root: str, number: int, changed: ClaimDocument) -> None:
    Path(root, "claims", f"{number:020d}.json").write_text(codec.to_json(changed))


def test_held_table_is_busy_and_names_the_holder(root: str) -> None:
    with take(root, "first") as claim:
        with pytest.raises(RetriableError, match="TABLE_BUSY") as caught:
            take(root, "second")
        claim.check()
    message = str(caught.value)
    me = ProcessIdentity.current()
    assert "run 'first'" in message
    assert f"on {me.host} (pid {os.getpid()})" in message
    assert "seen 0 s ago" in message


def test_released_claim_is_acquired_at_once(root: str) -> None:
    for number in range(1, 6):
        with take(root) as claim:
            claim.check()
            assert numbers(root) == [number]
            assert not document(root, number).released
        assert document(root, number).released


def test_failed_run_releases_its_claim(root: str) -> None:
    with pytest.raises(ZeroDivisionError), take(root):
        raise ZeroDivisionError
    with take(root, "next"):
        assert numbers(root) == [2]


def test_an_error_of_an_overtaken_run_is_that_it_was_overtaken(root: str) -> None:
    """It compares what it has read before with what another run has written."""
    claim = take(root, "far")
    rewrite(root, 1, elsewhere(document(root, 1), 61))
    take(root).release()
    with pytest.raises(RetriableError, match="CLAIM_LOST") as caught, claim:
        raise FileNotFoundError("removed by the other")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_another_table_is_another_claim(root: str) -> None:
    with take(root), take(f"{root}-other"):
        assert numbers(root) == numbers(f"{root}-other") == [1]


def elsewhere(found: ClaimDocument, seconds: float) -> ClaimDocument:
    """The same claim, made on another host and renewed so long ago."""
    renewed = (clock() - timedelta(seconds=seconds)).isoformat(timespec="microseconds")
    return replace(found, process=replace(found.process, host="other", pid=1), renewed_at=renewed)


def test_claim_of_another_host_holds_until_it_expires(root: str) -> None:
    claim = take(root, "far")
    rewrite(root, 1, elsewhere(document(root, 1), 50))
    with pytest.raises(RetriableError, match=r"run 'far' on other \(pid 1\) holds the table, seen 50 s ago"):
        take(root)
    rewrite(root, 1, elsewhere(document(root, 1), 61))
    with take(root) as taken:
        taken.check()
        with pytest.raises(RetriableError, match="CLAIM_LOST"):
            claim.check()
        claim.release()
        taken.check()
        with pytest.raises(RetriableError, match="TABLE_BUSY"):
            take(root)
    claim.release()


def test_a_young_claim_is_not_read(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = take(root, "far")
    rewrite(root, 1, elsewhere(document(root, 1), 61))
    with take(root):
        claim.check_unless_young()
        monkeypatch.setattr(claims, "YOUNG_SECONDS", 0.0)
        with pytest.raises(RetriableError, match="CLAIM_LOST"):
            claim.check_unless_young()


def test_waiting_ends_when_the_holder_does(root: str) -> None:
    holder = take(root)
    begun = time.monotonic()
    with pytest.raises(RetriableError, match="TABLE_BUSY"):
        take(root, wait_seconds=0.2)
    assert time.monotonic() - begun >= 0.2
    storage = Watched()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Claim.acquire, storage, root, "next", clock, 60.0)
        assert storage.read_once.wait(60)
        assert not waiting.done()
        holder.release()
        waiting.result().release()


class Watched(Storage):
    """It says when a claim has been read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_once = threading.Event()

    def read(self, path: str) -> bytes:
        found = super().read(path)
        self.read_once.set()
        return found


def test_claim_is_renewed_while_held(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "RENEWAL_SECONDS", 0.01)
    with take(root, "renewed") as claim:
        first = document(root, 1).renewed_at
        wait_for(lambda: document(root, 1).renewed_at > first)
        claim.check()
    wait_for(lambda: "claim-renewed" not in {thread.name for thread in threading.enumerate()})
    assert document(root, 1).released


def plant(root: str, name: str, text: str) -> Path:
    path = Path(root, "claims", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def claim_text(**changed: Any) -> str:
    """A claim of a living process elsewhere, with some fields as they should not be."""
    process = {"host": "other", "boot": "b", "pid": 1, "started": "1"}
    fields = {"run_id": "planted", "token": "t", "process": process, "ttl": 60.0, "released": False}
    now = clock().isoformat(timespec="microseconds")
    return json.dumps({**fields, "renewed_at": now, **changed})


def hours_ahead(hours: float) -> str:
    return (clock() + timedelta(hours=hours)).isoformat(timespec="microseconds")


DAMAGED = {
    "no JSON": "{",
    "no UTF-8": "\udcff",
    "nested deeply": "[" * 100_000,
    "a time from the future": claim_text(renewed_at=hours_ahead(1000)),
    "a time beyond the calendar": claim_text(renewed_at="99999-01-01T00:00:00+00:00"),
    "the last year, in a zone before it": claim_text(renewed_at="9999-12-31T23:59:59-12:00"),
    "a naive time": claim_text(renewed_at="2024-01-01T00:00:00"),
    "no time": claim_text(renewed_at="yesterday"),
    "ttl 1e308": claim_text(ttl=1e308),
    "ttl of 400 digits": claim_text(ttl=10**400),
    "ttl without end": claim_text(ttl=float("inf")),
    "ttl that is no number": claim_text(ttl=float("nan")),
    "ttl of nothing": claim_text(ttl=0),
    "ttl before the renewal": claim_text(ttl=-1),
    "a process id of 5,000 digits": claim_text().replace('"pid": 1', '"pid": ' + "1" * 5000),
    "another field": claim_text(more=1),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_claim_is_reported_with_a_working_remedy(root: str, what: str) -> None:
    path = plant(root, f"{7:020d}.json", "")
    path.write_bytes(DAMAGED[what].encode(errors="surrogateescape"))
    with pytest.raises(FatalError, match="CLAIM_DAMAGED") as caught:
        take(root)
    assert caught.value.where == str(path)
    assert "delete" in caught.value.remedy
    path.unlink()
    with take(root) as claim:
        claim.check()


@pytest.mark.parametrize("name", [f"{7:021d}.json", "1" * 21 + ".json", "9" * 20 + ".json", "7.json"])
def test_invalid_claim_number_is_reported_with_a_working_remedy(root: str, name: str) -> None:
    path = plant(root, name, claim_text(released=True))
    with pytest.raises(FatalError, match="CLAIM_DAMAGED") as caught:
        take(root)
    assert caught.value.where == str(path)
    path.unlink()
    with take(root) as claim:
        claim.check()


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_claim_admits_no_second_run(root: str, what: str) -> None:
    """Neither while it is there nor once its remedy was followed."""
    with take(root, "holder") as claim:
        path = plant(root, f"{7:020d}.json", "")
        path.write_bytes(DAMAGED[what].encode(errors="surrogateescape"))
        with pytest.raises(FatalError, match="CLAIM_DAMAGED"):
            take(root)
        path.unlink()
        with pytest.raises(RetriableError, match="run 'holder'"):
            take(root)
        claim.check()


def test_clocks_may_differ_by_less_than_a_claim_lasts(root: str) -> None:
    plant(root, f"{7:020d}.json", claim_text(renewed_at=hours_ahead(50 / 3600)))
    with pytest.raises(RetriableError, match=r"run 'planted' on other .* seen 0 s ago"):
        take(root)


def test_dead_claim_from_before_a_clock_was_set_back_is_taken(root: str) -> None:
    """Of a holder elsewhere, of whose death nothing else tells."""
    plant(root, f"{7:020d}.json", claim_text(renewed_at=hours_ahead(20), ttl=0.2))
    with take(root) as claim:
        claim.check()
        assert numbers(root) == [8]


@pytest.mark.parametrize("hours", [3.01, 0.0])
def test_holder_from_before_a_clock_was_set_back_keeps_its_claim(root: str, hours: float) -> None:
    """It renews the claim, by either clock."""
    path = plant(root, f"{7:020d}.json", claim_text(renewed_at=hours_ahead(3)))
    renewed = threading.Timer(0.2, lambda: path.write_text(claim_text(renewed_at=hours_ahead(hours))))
    renewed.start()
    with pytest.raises(RetriableError, match="TABLE_BUSY"):
        take(root)
    renewed.join()
    assert numbers(root) == [7]


def test_killed_holder_of_this_machine_is_known_whatever_the_clock_says(root: str) -> None:
    process = asdict(replace(ProcessIdentity.current(), started="1"))
    plant(root, f"{7:020d}.json", claim_text(renewed_at=hours_ahead(3), process=process))
    with take(root) as claim:
        claim.check()


def test_removed_claim_number_is_not_reused(root: str) -> None:
    """Who read the listing before others took, released and cleaned up must not win with an old number."""
    storage = Slow(root)
    with pytest.raises(RetriableError, match="TABLE_BUSY"):
        Claim.acquire(storage, root, "slow", clock)
    assert storage.overtaken
    assert numbers(root) == [3]
    storage.holder.release()


def listed(root: str) -> dict[str, StoredObject | None]:
    return {item.name: item for item in Storage().list(root)}


@pytest.mark.parametrize("brought_back", [False, True])
def test_number_removed_since_a_listing_is_not_reused(root: str, brought_back: bool) -> None:
    take(root).release()
    before, path = listed(root), Path(root, "claims", f"{1:020d}.json")
    text, storage = path.read_text(), Slow(root)
    storage.then = lambda: path.write_text(text) if brought_back else None
    with pytest.raises(RetriableError, match="TABLE_BUSY"):
        Claim.acquire(storage, root, "slow", clock, listed=before)
    storage.holder.release()


def test_a_listing_counts_if_its_claim_was_released_before(root: str) -> None:
    with take(root):
        held = listed(root)
    released = listed(root)
    Path(root, "new.json").touch()
    with Claim.acquire(Storage(), root, "run", clock, listed=held) as claim:
        assert "new.json" in claim.listed
    with Claim.acquire(Storage(), root, "run", clock, listed=released) as claim:
        assert "new.json" in claim.listed
    released = {name: item for name, item in listed(root).items() if name != "new.json"}
    with Claim.acquire(Storage(), root, "run", clock, listed=released) as claim:
        assert "new.json" not in claim.listed


class Slow(Storage):
    """While it is about to put its first claim, three others come and go but the last."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root, self.overtaken = root, False
        self.then: Callable[[], object] = lambda: None

    def create(self, path: str, data: bytes) -> bool:
        if not self.overtaken:
            self.overtaken = True
            take(self.root, "one").release()
            take(self.root, "two").release()
            self.holder = take(self.root, "three")
            self.then()
        return super().create(path, data)


def test_dead_and_running_processes_are_distinguished() -> None:
    me = ProcessIdentity.current()
    assert not me.is_known_dead(me)
    assert replace(me, started="1").is_known_dead(me), "the process id was used again"
    assert not replace(me, started="1", host="other").is_known_dead(me)
    assert not replace(me, started="1", boot="other").is_known_dead(me)
    assert not replace(me, started="1", boot="").is_known_dead(replace(me, boot=""))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        child = replace(me, pid=process.pid, started=Path(f"/proc/{process.pid}/stat").read_text().split()[21])
        assert not child.is_known_dead(me)
        process.kill()
        wait_for(lambda: child.is_known_dead(me), "a zombie, which is dead too")
    assert child.is_known_dead(me)


HOLD = """
import sys
from datetime import UTC, datetime
from spark_jobs.ledger.claim import Claim
from airflow_gddl.stores import Storage, StoredObject
from tests.harness.waiting import wait_for
with Claim.acquire(Storage(), sys.argv[1], "victim", lambda: datetime.now(UTC), float(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


class Waiter:
    """Another process that claims, says so and holds until its input ends."""

    def __init__(self, root: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, root, "30"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Waiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def test_claim_of_a_killed_process_is_taken_over_at_once(root: str) -> None:
    with Waiter(root) as victim:
        assert victim.answer() == "held"
        with pytest.raises(RetriableError, match=f"run 'victim' on .* \\(pid {victim.process.pid}\\)"):
            take(root)
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
    assert not document(root, 1).released
    with take(root) as claim:
        claim.check()
        assert numbers(root) == [2]


def race(root: str, name: str, barrier: Barrier, results: multiprocessing.SimpleQueue[list[str]]) -> None:
    outcomes = []
    for _ in range(ROUNDS):
        barrier.wait(30)
        try:
            claim = take(root, name)
        except RetriableError as error:
            outcomes.append(error.code)
            barrier.wait(30)
        else:
            outcomes.append("held")
            barrier.wait(30)
            claim.check()
            claim.release()
        barrier.wait(30)
    results.put(outcomes)


@pytest.fixture
def pair(root: str) -> Iterator[tuple[list[str], list[str]]]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.SimpleQueue()
    racers = [context.Process(target=race, args=(root, name, barrier, results)) for name in ("a", "b")]
    for racer in racers:
        racer.start()
    yield results.get(), results.get()
    for racer in racers:
        racer.join()


def test_one_of_two_racing_processes_holds(pair: tuple[list[str], list[str]], root: str) -> None:
    rounds = list(zip(*pair, strict=True))
    assert len(rounds) == ROUNDS
    assert {tuple(sorted(outcome)) for outcome in rounds} == {("TABLE_BUSY", "held")}
    assert len(numbers(root)) == 1


def test_a_claim_is_released_when_the_store_comes_back(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that found its disk full held the table for a minute more, though there was space again."""
    monkeypatch.setattr(claims, "RELEASE_RETRY_SECONDS", 0.02)
    full, write = threading.Event(), Storage.write

    def fails(self: Storage, path: str, data: bytes) -> None:
        if full.is_set():
            raise RetriableError("DISK_FULL", "No space left on device", where=path)
        write(self, path, data)

    monkeypatch.setattr(Storage, "write", fails)
    with take(root, "first"):
        full.set()
    with pytest.raises(RetriableError, match=r"TABLE_BUSY.*'first'"):
        take(root, "second")
    assert not document(root, 1).released
    full.clear()
    with take(root, "second", wait_seconds=20.0):
        assert numbers(root) == [2]


class LostResponses(Storage):
    """Does what is asked; the response is lost, and the client's own retry is refused."""

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:
        super().swap(path, data, tag)
        return False


def test_a_claim_is_renewed_though_responses_are_lost(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "RENEWAL_SECONDS", 0.02)
    with Claim.acquire(LostResponses(), root, "run", clock) as claim:
        first = document(root, 1).renewed_at
        wait_for(lambda: document(root, 1).renewed_at > first)
        second = document(root, 1).renewed_at
        wait_for(lambda: document(root, 1).renewed_at > second)
        claim.check()
