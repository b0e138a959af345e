"""The sensor and its trigger, on the triggerer's side and on the worker's (docs/airflow.md)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import importlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import TaskSkippedEvent, TriggerEvent

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.runtime.landing.polling import poll
from airflow_gddl.runtime.landing.run_request import from_params
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question
from airflow_gddl.runtime.state.recording import write_record
from airflow_gddl.sensors.tables import GddlTablesSensor
from airflow_gddl.stores import open_store
from airflow_gddl.triggers import POLL_ON_WORKER, GddlFilesTrigger, GddlTablesTrigger, poll_once, utc_now
from airflow_gddl.version_compat import (
    STARTS_FROM_TRIGGER,
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskDeferred,
)
from tests.airflow.bag import serialised
from tests.airflow.stage import Stage

PACK = "gddl_pack.shop.small.1"


def trigger(stage: Stage, **changes: Any) -> GddlTablesTrigger:
    """As the triggerer makes one: from what another was serialised to."""
    arguments: dict[str, Any] = {"metadata": str(stage.metadata), "pipeline": PACK, "run_params": "{}", "run_id": "r"}
    arguments |= {"forever": False, "poll_seconds": 0.05, "patience_seconds": 0.0, **changes}
    path, kept = GddlTablesTrigger(**arguments).serialize()
    module, _, name = path.rpartition(".")
    made: GddlTablesTrigger = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(kept)))
    return made


async def first(events: AsyncIterator[TriggerEvent]) -> TriggerEvent:
    return await anext(events)


def fired(made: GddlTablesTrigger) -> TriggerEvent:
    return asyncio.run(asyncio.wait_for(first(made.run()), 20))


def test_a06_nothing_to_do_ends_the_task_in_the_triggerer(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    assert isinstance(fired(trigger(stage)), TaskSkippedEvent)


def test_a06_work_is_returned_as_plain_data(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.b")
    work = decode(PipelineWork, json.loads(json.dumps(fired(trigger(stage)).payload)))
    assert list(work.initial) == ["shop.b"]


def test_a06_a_continuous_pipeline_waits_and_lets_others_work(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")

    async def both() -> tuple[TriggerEvent, int]:
        waiting = asyncio.create_task(first(trigger(stage, forever=True).run()))
        ticks = 0
        while not waiting.done():
            await asyncio.sleep(0.02)
            ticks += 1
            if ticks == 10:
                stage.land("shop.a")
        return await waiting, ticks

    event, ticks = asyncio.run(asyncio.wait_for(both(), 20))
    assert "shop.a" in event.payload["initial"]
    assert ticks >= 10


def test_an_unreachable_store_is_raised_by_the_task(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    scandir = os.scandir

    def failing(path: str) -> object:
        if str(path).startswith(str(stage.landing)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    event = fired(trigger(stage))
    assert event.payload["passing"] is True
    assert "STORAGE_BUSY" in event.payload["error"]


def test_a02_invalid_requests_are_not_retried(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    for asked in ('{"tables": ["shop.x"]}', '{"from": "yesterday"}'):
        event = fired(trigger(stage, run_params=asked))
        assert event.payload["passing"] is False
        assert "OPTION_INVALID" in event.payload["error"]


def test_a_window_without_files_is_named(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    asked = {"tables": ["shop.a"], "action": "rebuild", "from": "2999-01-01"}
    assert isinstance(fired(trigger(stage, run_params=json.dumps(asked))), TaskSkippedEvent)
    work = poll_once(str(stage.metadata), PACK, Question(run="manual__1", now=utc_now(), form=from_params(asked)))
    assert work is not None
    assert work.why_none == (
        "no landing file of shop.a was last modified from 2999-01-01; change from and to, or leave them out"
    )
    waiting = PipelineWork(looked_at=utc_now(), held={"s.a": ("s.b",)})
    assert waiting.why_none == "no table has work; s.a waits for s.b"


def test_a_triggerer_without_metadata_leaves_the_poll_to_the_worker(stage: Stage) -> None:
    assert fired(trigger(stage, metadata=str(stage.root / "nowhere"))).payload == POLL_ON_WORKER


def test_a_run_that_only_waits_for_others_waits_for_a_while(stage: Stage) -> None:
    stage.rows("{table: shop.x, keys: [id], depends_on: [shop.y]}", "{table: shop.y, keys: [id], size: large}")
    stage.land("shop.x")
    stage.land("shop.y")
    start = time.monotonic()
    assert isinstance(fired(trigger(stage, patience_seconds=0.5)), TaskSkippedEvent)
    assert 0.5 <= time.monotonic() - start < 10


class Instance:
    """What the sensor uses of a task instance."""

    try_number = 1

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}
        self.try_number = 1

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def back(stage: Stage, event: Any) -> dict[str, Any]:
    """What the sensor pushes once it is back from the triggerer with this event."""
    sensor = build_dags()[PACK].get_task("landed")
    assert isinstance(sensor, GddlTablesSensor)
    instance = Instance()
    context: Any = {"ti": instance, "run_id": "r", "params": {}}
    with contextlib.suppress(DownstreamTasksSkipped):  # the task succeeded, a load has no work
        sensor.polled(context, event)
    return instance.pushed


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"error": "[STORAGE_BUSY] x", "passing": True}, AirflowException),
        ({"error": "[OPTION_INVALID] x", "passing": False}, AirflowFailException),
        ("skipped", AirflowSkipException),
    ],
)
def test_the_task_raises_the_trigger_s_error(stage: Stage, event: Any, error: type[Exception]) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    with pytest.raises(error) as met:
        back(stage, event)
    assert type(met.value) is error


def test_the_worker_polls_where_the_triggerer_could_not(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    with pytest.raises(AirflowSkipException):
        back(stage, POLL_ON_WORKER)
    stage.land("shop.a")
    assert list(back(stage, POLL_ON_WORKER)["return_value"]["initial"]) == ["shop.a"]


def test_a_task_that_starts_in_a_worker_defers_only_to_wait(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow may fail a task whose trigger fires at once (apache/airflow#66374, #72716)."""
    monkeypatch.setenv("AIRFLOW__GDDL__DEPENDENCY_WAIT_SECONDS", "60")
    stage.rows("{table: shop.x, keys: [id], depends_on: [shop.y]}", "{table: shop.y, keys: [id], size: large}")

    def work(asked: str = "{}") -> Any:
        sensor = build_dags()[PACK].get_task("landed")
        assert isinstance(sensor, GddlTablesSensor)
        sensor.run_params, sensor.run_id, sensor.try_number = asked, "r", "1"
        instance = Instance()
        context: Any = {"ti": instance, "run_id": "r", "params": {}}
        with contextlib.suppress(DownstreamTasksSkipped):
            sensor.execute(context)
        return instance.pushed["return_value"]

    with pytest.raises(AirflowSkipException):
        work()
    with pytest.raises(AirflowFailException, match="OPTION_INVALID"):
        work('{"tables": 1}')
    stage.land("shop.x")
    stage.land("shop.y")
    with pytest.raises(TaskDeferred) as deferred:
        work()
    assert deferred.value.method_name == "polled"
    stage.rows("{table: shop.x, keys: [id]}", "{table: shop.y, keys: [id], size: large}")
    assert list(work()["initial"]) == ["shop.x"]


def test_a06_the_task_starts_in_the_triggerer_where_that_knows_the_params(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    (task,) = (
        t for t in json.loads(serialised(build_dags()[PACK]))["dag"]["tasks"] if t["__var"]["task_id"] == "landed"
    )
    assert task["__var"].get("start_from_trigger", False) is STARTS_FROM_TRIGGER
    # A trigger takes its templates only from fields that both it and the task have.
    assert {"run_params", "run_id", "try_number"} <= set(vars(trigger(stage)))
    assert set(task["__var"]["template_fields"]) == {"run_params", "run_id", "try_number"}


def events_of(
    made: GddlFilesTrigger, changes: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """Payloads of a trigger that has polled twice, without an event, before each of the changes."""
    polls = 0

    def counted(*given: Any) -> Any:
        nonlocal polls
        polled = poll(*given)
        polls += 1
        return polled

    async def events() -> list[Any]:
        nonlocal polls
        running, found = made.run(), []
        for change in changes:
            polls, waiting = 0, asyncio.create_task(first(running))
            while polls < 2:
                await asyncio.sleep(0.01)
            assert not waiting.done()
            change()
            found.append((await waiting).payload)
        return found

    with monkeypatch.context() as patch:
        patch.setattr("airflow_gddl.triggers.poll", counted)
        return asyncio.run(asyncio.wait_for(events(), 60))


def test_new_files_are_events_for_asset_watchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop" / "a" / "20240101-000000000.parquet"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    made = GddlFilesTrigger(landing=str(tmp_path), tables=["shop.b", "shop.a"], poll_seconds=0.05)
    assert made.serialize()[1]["tables"] == ["shop.a", "shop.b"]

    names = ("20240102-000000000.parquet", "20240103-000000000.parquet")
    changes = [functools.partial((path.parent / name).write_text, "y") for name in names]
    assert events_of(made, changes, monkeypatch) == [{"tables": ["shop.a"]}] * 2


def test_run_records_are_events_for_consumers_of_continuous_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/streaming.md has it."""
    roots, moment = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake")), "2024-01-01T00:00:0{}+00:00"
    store = open_store()
    turns = [JobResult(table="shop.orders", status="succeeded", started_at=moment.format(n)) for n in range(3)]
    write_record(store, roots, turns[0])
    made = GddlFilesTrigger(landing=f"{roots.lake}/_gddl/runs", tables=["shop.orders"], poll_seconds=0.05)

    changes = [functools.partial(write_record, store, roots, turn) for turn in turns[1:]]
    assert events_of(made, changes, monkeypatch) == [{"tables": ["shop.orders"]}] * 2
