"""What S3 and the way to it can do wrong, and what a job makes of it."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runners.interface import Platform
from airflow_gddl.runners.remote import Attempts, RemoteRunner, TaskKey
from airflow_gddl.runtime.compiled import placements
from airflow_gddl.runtime.compiled.documents import PlacementDocument
from airflow_gddl.runtime.state.documents import PipelineState
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.stores import Storage, open_store, update_object
from airflow_gddl.stores.lake_files import check_roots
from airflow_gddl.topology.placement import Pack, Placement
from tests.conftest import LocalPort
from tests.remote.world import Heard
from tests.s3 import delivery
from tests.s3.conftest import Place, Server
from tests.s3.faulty import Fault, Way
from tests.s3.job_port import JobPort
from tests.spark.children import Child

Reach = Callable[[Place], None]
EXPIRED = Fault("answer", status=400, code="ExpiredToken")


def rows(place: Place, name: str) -> dict[int, str]:
    path = Layout.of(place.roots, delivery.table(name)).replica
    options = Storage(environ=place.environ).options_of(path)
    return {r["id"]: r["v"] for r in pa.table(DeltaTable(path, storage_options=options).scan()).to_pylist()}


@pytest.mark.parametrize(
    "faults",
    [
        [Fault("answer", status=503, code="SlowDown", times=6)],
        [Fault("answer", status=500, code="InternalError", method="PUT", times=3)],
        [Fault("reset", times=3)],
        [Fault("cut", method="GET", path=".parquet", times=2)],
        [Fault("slow", seconds=0.3, times=10), Fault("reset", method="PUT", path="plan.json", times=2)],
    ],
    ids=["slow-down", "internal-error", "reset", "cut-in-the-middle", "slow"],
)
def test_transient_faults_are_retried(server: Server, way: Way, reach: Reach, faults: list[Fault]) -> None:
    place = server.place(way.endpoint)
    reach(place)
    delivery.deliver_load(place, "a")
    way.faults = [replace(fault) for fault in faults]
    result = delivery.run_here(place, ["a"])["a"]
    assert result.status == "succeeded", result.error
    assert rows(place, "a") == delivery.ROWS
    assert all(fault.met == fault.times for fault in way.faults)


PUTS = {
    "claim": "_gddl/ledger/s/a/claims/",
    "plan": "_gddl/ledger/s/a/plan.json",
    "change table": "lake/s/a__changes/_delta_log/",
    "replica": "lake/s/a/_delta_log/",
    "ledger": "_gddl/ledger/s/a/commits/",
    "any": "lake/",
}
"""What a run puts, to a part of the path."""
FAULTS = {
    "500 after taking effect": Fault("done", status=500, code="InternalError"),
    "503 after taking effect": Fault("done", status=503),
    "lost after taking effect": Fault("lost"),
    "cut": Fault("cut"),
    "slow": Fault("slow", seconds=0.05),
    "refused": Fault("answer", status=500, code="InternalError"),
}


BY_THE_STORE = ("STORAGE_BUSY", "S3_UNREACHABLE")


def again(place: Place, port: LocalPort | None) -> JobResult:
    """A later run, which waits at most a moment: the faulty one has left no claim."""
    return delivery.run_here(place, ["a"], "again", wait=10.0, port=port)["a"]


def play_puts(
    server: Server, way: Way, reach: Reach, chance: random.Random, runs: int, port: LocalPort | None = None
) -> Counter[str]:
    """Runs of one table, a change file each, whose PUTs meet faults; the table is judged after each run.

    Returns:
        The codes of the runs, `succeeded` among them. A run that fails is repeated without faults.
    """
    place = server.place(way.endpoint)
    place = replace(place, environ={**place.environ, "AWS_MAX_ATTEMPTS": "3"})
    reach(place)
    delivery.deliver_load(place, "a")
    assert delivery.run_here(place, ["a"], "first", port=port)["a"].status == "succeeded"
    expected, codes = dict(delivery.ROWS), Counter[str]()
    for number in range(1, runs + 1):
        key, value = chance.randrange(8), f"v{number}"
        row: dict[str, list[object]] = {"Op": ["U"], "seq": [number], "id": [key], "v": [value]}
        delivery.put(place, "a", f"20240101-{number:09d}", row)
        expected[key] = value
        fault = replace(FAULTS[chance.choice(sorted(FAULTS))], path=PUTS[chance.choice(sorted(PUTS))], method="PUT")
        way.faults = [replace(fault, times=chance.choice([1, 2, 6]))]
        found = delivery.run_here(place, ["a"], f"run-{number}", port=port)["a"]
        codes[found.error.code if found.error is not None else found.status] += 1
        way.faults = []
        if found.error is not None:
            assert found.error.code in BY_THE_STORE, (fault, found.error)
            later = again(place, port)
            assert later.status in ("succeeded", "skipped"), (fault, found.error, later.error)
        assert rows(place, "a") == expected, fault
    path = Layout.of(place.roots, delivery.table("a")).changes
    options = Storage(environ=place.environ).options_of(path)
    stored = pa.table(DeltaTable(path, storage_options=options).scan()).to_pylist()
    assert sorted(row["seq"] for row in stored if row["seq"] is not None) == list(range(1, runs + 1)), (
        "each change once"
    )
    return codes


def test_puts_that_take_effect_and_fail_lose_and_repeat_nothing(server: Server, way: Way, reach: Reach) -> None:
    """A commit, a claim or a ledger's row that is there though the answer said otherwise."""
    codes = play_puts(server, way, reach, random.Random(28), runs=12)  # noqa: S311 - repeatable
    assert codes["succeeded"] > 4, codes


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_puts_meet_faults_a_thousand_times(server: Server, way: Way, reach: Reach, seed: int) -> None:
    codes = play_puts(server, way, reach, random.Random(seed), runs=100)  # noqa: S311 - repeatable
    assert codes["succeeded"] > 50, codes


def play_expiry(server: Server, way: Way, reach: Reach, requests: Sequence[int], port: LocalPort | None = None) -> None:
    """From any request of a run on the store refuses the token; the next run has a new one."""
    place = server.place(way.endpoint)
    reach(place)
    delivery.deliver_load(place, "a")
    assert delivery.run_here(place, ["a"], "first", port=port)["a"].status == "succeeded"
    expected, codes, number = dict(delivery.ROWS), Counter[str](), 0
    for after in requests:
        number += 1
        expected[number % 8] = f"v{number}"
        row: dict[str, list[object]] = {"Op": ["U"], "seq": [number], "id": [number % 8], "v": [f"v{number}"]}
        delivery.put(place, "a", f"20240101-{number:09d}", row)
        way.faults = [Fault("answer", status=400, code="ExpiredToken", after=after)]
        found = delivery.run_here(place, ["a"], f"run-{number}", port=port)["a"]
        codes[found.error.code if found.error is not None else found.status] += 1
        way.faults = []
        later = again(place, port)
        assert later.status in ("succeeded", "skipped"), (after, found.error, later.error)
        assert rows(place, "a") == expected, after
    # An answer to HEAD has no body that tells why.
    assert set(codes) <= {"S3_CREDENTIALS_EXPIRED", "STORAGE_BUSY", "succeeded"}, codes
    assert codes["S3_CREDENTIALS_EXPIRED"] >= len(requests) / 2, codes
    path = Layout.of(place.roots, delivery.table("a")).changes
    stored = pa.table(DeltaTable(path, storage_options=Storage(place.environ).options_of(path)).scan()).to_pylist()
    assert sorted(r["seq"] for r in stored if r["seq"] is not None) == list(range(1, number + 1)), "each change once"


@pytest.mark.parametrize("requests", [(9, 30), pytest.param(range(60), marks=pytest.mark.deep)], ids=["two", "all"])
def test_credentials_that_expire_within_a_batch_lose_and_repeat_nothing(
    server: Server, way: Way, reach: Reach, requests: Sequence[int]
) -> None:
    play_expiry(server, way, reach, requests)


@pytest.mark.deep
@pytest.mark.parametrize("what", ["puts", "expiry"])
def test_tasks_of_spark_meet_the_faults(what: str) -> None:
    """In a process of its own: tasks get the environment in which the JVM was started."""
    with Child("tests.s3.faults_on_spark", [what]) as child:
        ended = child.end(timeout=900)
    assert (ended.status, ended.out.splitlines()[-1]) == (0, "passed"), ended


def test_denied_prefix_fails_its_table_alone(server: Server, way: Way, reach: Reach) -> None:
    place = server.place(way.endpoint)
    reach(place)
    denied = {"b": "landing/s/b/", "c": "lake/s/c", "d": "lake/_gddl/ledger/s/d/"}
    names = ["a", *denied, "e"]
    delivery.deliver(place, names)
    way.faults = [Fault("answer", path=prefix, status=403, code="AccessDenied") for prefix in denied.values()]
    done = delivery.run_here(place, names)
    codes = {name: result.error.code for name, result in done.items() if result.error is not None}
    assert codes == dict.fromkeys(denied, "STORAGE_DENIED")
    assert {name: done[name].status for name in "ae"} == {"a": "succeeded", "e": "succeeded"}
    way.faults = []
    again = delivery.run_here(place, list(denied), "again")
    assert {result.status for result in again.values()} == {"succeeded"}
    assert [rows(place, name) for name in names] == [delivery.ROWS] * 5


def test_throttling_is_retriable(server: Server, way: Way, reach: Reach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    place = server.place(way.endpoint)
    place = replace(place, environ={**place.environ, "AWS_MAX_ATTEMPTS": "2"})
    reach(place)
    delivery.deliver(place, ["a", "b"])
    way.faults = [Fault("answer", path="/s/b")]
    done = delivery.run_here(place, ["a", "b"])
    assert done["a"].status == "succeeded"
    assert done["b"].error is not None
    assert done["b"].error.code == "STORAGE_BUSY"


def unreachable(server: Server, way: Way) -> dict[str, tuple[Place, type[GddlError]]]:
    """A place for each fault that concerns all of it, by the error's code, and whether it may pass."""
    good = server.place(way.endpoint)
    keys = {**good.environ, "AWS_SECRET_ACCESS_KEY": "wrong"}
    return {
        "S3_UNREACHABLE": (
            replace(good, environ={**good.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}),
            RetriableError,
        ),
        "S3_BUCKET_MISSING": (replace(good, name="no-such-bucket"), FatalError),
        "S3_CREDENTIALS_REFUSED": (replace(good, environ=keys), FatalError),
        "S3_CREDENTIALS_EXPIRED": (good, FatalError),
        "S3_ENDPOINT_INVALID": (replace(good, environ={**good.environ, "AWS_ENDPOINT_URL": "s3.example"}), FatalError),
    }


CODES = (
    "S3_UNREACHABLE",
    "S3_BUCKET_MISSING",
    "S3_CREDENTIALS_REFUSED",
    "S3_CREDENTIALS_EXPIRED",
    "S3_ENDPOINT_INVALID",
)


@pytest.mark.parametrize("code", CODES)
def test_common_error_is_reported_before_any_write(server: Server, way: Way, code: str) -> None:
    place, family = unreachable(server, way)[code]
    way.faults = [replace(EXPIRED)] if code == "S3_CREDENTIALS_EXPIRED" else []
    started = time.monotonic()
    with pytest.raises(family) as reported:
        JobPort("one", place.environ).outcome(delivery.job(place, ["a", "b"]))
    assert reported.value.code == code
    assert server.gateway.secret not in str(reported.value)
    assert time.monotonic() - started < 30
    assert [request for request in way.requests if not request.startswith(("GET", "HEAD"))] == []


@pytest.mark.parametrize("code", CODES)
def test_job_reports_the_error_for_each_table(server: Server, way: Way, reach: Reach, code: str) -> None:
    """Where the job runs elsewhere, and its machine sees what the caller's does not."""
    place, _ = unreachable(server, way)[code]
    place = replace(place, environ={**place.environ, "AWS_MAX_ATTEMPTS": "2"})
    reach(place)
    way.faults = [replace(EXPIRED)] if code == "S3_CREDENTIALS_EXPIRED" else []
    done = delivery.run_here(place, ["a", "b"])
    assert [result.error.code if result.error else None for result in done.values()] == [code, code]
    assert [request for request in way.requests if not request.startswith(("GET", "HEAD"))] == []


@pytest.mark.parametrize("code", CODES)
def test_no_platform_is_called(server: Server, way: Way, code: str) -> None:
    """Where the lake can't be reached, nothing can be remembered of a run, so that none is started."""
    place, family = unreachable(server, way)[code]
    way.faults = [replace(EXPIRED)] if code == "S3_CREDENTIALS_EXPIRED" else []
    store = open_store({**place.environ, "AWS_MAX_ATTEMPTS": "1"})
    attempts = Attempts(store, place.roots.lake, TaskKey(pipeline="p", run="r", task="t"))
    asked: list[str] = []

    def platform() -> Platform:
        asked.append(code)
        raise AssertionError("a platform was asked for")

    with pytest.raises(family, match=code):
        RemoteRunner(open=platform, store=store, attempts=attempts).run(delivery.job(place, ["a", "b"]), Heard())
    assert asked == []
    assert [request for request in way.requests if not request.startswith(("GET", "HEAD"))] == []


def test_unlistable_root_stops_no_table(server: Server, way: Way) -> None:
    place = server.place(way.endpoint)
    way.faults = [Fault("answer", path="list-type", status=403, code="AccessDenied")]
    check_roots(delivery.job(place, ["a"]), place.environ)
    assert way.requests != []


def test_log_is_kept_if_its_upload_fails(server: Server, way: Way) -> None:
    place = server.place(way.endpoint)
    delivery.deliver_load(place, "a")
    way.faults = [Fault("answer", path="_gddl/logs", status=403, code="AccessDenied")]
    outcome = JobPort("one", place.environ).outcome(delivery.job(place, ["a"]))
    assert [result.status for result in outcome.results] == ["succeeded"]
    assert outcome.log is not None
    assert Path(outcome.log).is_file()
    shutil.rmtree(Path(outcome.log).parent)


REPEATED = {code: Fault("done", method="PUT", status=status, code=code, times=1)
            for code, status in (("InternalError", 500), ("SlowDown", 503))}  # fmt: skip
"""The client repeats the put; where a connection ends instead, it says so, and the caller's retry reads first."""


@pytest.mark.parametrize("fault", REPEATED)
@pytest.mark.parametrize("is_there", [False, True], ids=["first", "later"])
def test_a_conditional_put_whose_answer_is_lost_recognises_itself(
    server: Server, way: Way, fault: str, is_there: bool
) -> None:
    """The change is made once, and counts as made: repeated, the put meets its own content."""
    place = server.place(way.endpoint)
    store, path = Storage(environ=place.environ), f"{place.roots.lake}/_gddl/airflow/notes.json"
    if is_there:
        store.write(path, b"0")
    way.faults = [replace(REPEATED[fault])]
    calls: list[bytes | None] = []

    def change(before: bytes | None) -> bytes:
        calls.append(before)
        return (before or b"") + b"1"

    assert update_object(store, path, change, lambda after: after) == (b"01" if is_there else b"1")
    assert calls == [b"0" if is_there else None]
    assert way.faults[0].met == 1


@pytest.mark.parametrize("fault", REPEATED)
def test_polls_and_placements_whose_answer_is_lost_are_kept(server: Server, way: Way, reach: Reach, fault: str) -> None:
    place = server.place(way.endpoint)
    reach(place)
    one, two = (StateRecorder(place.roots, "gddl.a", (), environ=place.environ) for _ in range(2))
    assert one.known == PipelineState()
    changes: list[PipelineState] = []

    def change(before: PipelineState) -> PipelineState:
        changes.append(before)
        return replace(before, next_poll=str(len(changes)))

    way.faults = [replace(REPEATED[fault])]
    one.change(change)
    assert (len(changes), two.known.next_poll, way.faults[0].met) == (1, "1", 1)
    way.faults = [replace(REPEATED[fault])]
    path, placement = (
        placements.place_of(place.roots.lake, ""),
        Placement(packs={"gddl_pack.a": Pack(source="a", tier="small", schedule="hourly", tables=("s.a",))}),
    )
    document = PlacementDocument(path=path, placement=placement, tag=None, is_kept=False, roots=place.roots)
    assert placements.keep(document, 0.0, place.environ), "it is kept, though the store refused the second put"
    assert placements.read(path, place.environ)[0] == placement
    other = replace(document, placement=Placement())
    assert not placements.keep(other, 0.0, place.environ), "another writer's is no own one"


def test_another_writers_content_is_none_of_ones_own(server: Server, way: Way) -> None:
    place = server.place(way.endpoint)
    store, path = Storage(environ=place.environ), f"{place.roots.lake}/_gddl/airflow/notes.json"
    _, tag = (store.write(path, b"mine"), store.read_tagged(path)[1])
    assert store.swap_once(path, b"other", tag)
    assert not store.swap_once(path, b"late", tag)
    assert store.read(path) == b"other"
