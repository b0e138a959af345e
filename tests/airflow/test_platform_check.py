"""The DAG of `gddl check --platform`, as `DAG.test` runs it; a thread is the DAG processor."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Variable
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.triggers.base import TriggerEvent

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.platform_check import course, dag
from airflow_gddl.platform_check.catalog_entries import begin, database_of
from airflow_gddl.platform_check.checks import STORAGE
from airflow_gddl.platform_check.place import FOLDER
from airflow_gddl.version_compat import AirflowFailException, TaskDeferred
from tests.airflow.bag import serialised
from tests.airflow.stage import Stage
from tests.airflow.stored import put
from tests.catalogs.unity_server import unity_server

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
DATES = (datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in itertools.count())


@pytest.fixture(autouse=True)
def project(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    stage.lake.mkdir()
    monkeypatch.setattr(dag.ProcessorChecks, "poll_seconds", 0.05)


def made(**arguments: Any) -> DAG:
    return dag.platform_check(**arguments)


def run(wanted: DAG) -> tuple[dict[str, str], dict[str, Any]]:
    """States of the tasks, and what they returned."""
    put(wanted)
    done = wanted.test(logical_date=next(DATES))
    instances = done.get_task_instances()
    return {ti.task_id: str(ti.state) for ti in instances}, {
        ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in instances
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Variables in memory, and a thread that answers as the DAG processor does; what it was asked."""
    variables: dict[str, str] = {}
    questions: list[dict[str, Any]] = []
    over = threading.Event()

    def answer() -> None:
        while not over.wait(0.05):
            for question in list(variables.values()):
                questions.append(json.loads(question))
                dag.answer(questions[-1]["run"], None)

    monkeypatch.setattr(Variable, "set", lambda key, value, **_: variables.__setitem__(key, value))
    monkeypatch.setattr(Variable, "delete", variables.pop)
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield questions
    over.set()
    thread.join()
    assert variables == {}, "the question is withdrawn"


def found(returned: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(one["check"], one["from"]): one["result"] for one in returned["checks"]}


def test_each_process_makes_the_checks_and_all_is_removed(
    stage: Stage, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stand-in for jobs loads nothing, so that the checks of tables fail, and the task that says so."""
    monkeypatch.setattr(course.job_checks, "probes", lambda _: {})
    states, returned = run(made())
    assert states == dict.fromkeys(("worker", "triggerer", "dag_processor", "results"), "success")
    outcomes = found(returned["results"])
    may_read_all = {name for (name, _), state in outcomes.items() if state == "NOT TRIED"} & {"storage.denied"}
    for origin in ("worker", "triggerer", "dag processor"):
        here = {name: state for (name, place), state in outcomes.items() if place == origin}
        assert {name: here[name] for name in STORAGE} == {
            name: "NOT TRIED" if name in may_read_all else "PASS" for name in STORAGE
        }
        assert here["cleanup"] == "PASS"
    assert outcomes["airflow.triggerer", "triggerer"] == outcomes["airflow.dag_processor", "dag processor"] == "PASS"
    assert not (stage.lake / FOLDER).exists()
    assert {tuple(one) for one in asked} == {("run", "until")}
    shown = capfd.readouterr().out
    assert "airflow.dag_processor" in shown
    assert '"form": 1' in shown


def test_a_silent_dag_processor_and_a_failed_check_fail_the_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course.job_checks, "probes", lambda _: {})
    monkeypatch.setattr(Variable, "set", lambda *_, **__: None)
    monkeypatch.setattr(Variable, "delete", lambda _: None)
    states, _ = run(made(minutes=0.02))
    assert (states["dag_processor"], states["results"]) == ("failed", "failed")
    assert states["triggerer"] == "success"
    assert not (stage.lake / FOLDER).exists()


@pytest.mark.parametrize("is_processor", [True, False])
def test_only_the_dag_processor_answers(is_processor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the file elsewhere asks for no Variable."""
    asked: list[str] = []
    monkeypatch.setattr(Variable, "get", lambda key, default: asked.append(key) or default)
    name = "airflow.dag_processing.processor" if is_processor else "airflow.sdk.execution_time.task_runner"
    space: dict[str, Any] = {"__name__": name, "read": dag.platform_check}
    exec("def parse():\n    return read()", space)  # noqa: S102 - a frame of a module of that name
    parse: Callable[[], DAG] = space["parse"]
    assert parse().dag_id == "gddl_platform_check"
    assert asked == (["gddl_platform_check"] if is_processor else [])


def test_another_try_of_the_triggerer_begins_anew(stage: Stage) -> None:
    made = dag.PlatformCheckTrigger(run="abc", metadata=None, minutes=1)
    path, arguments = made.serialize()
    assert path == "airflow_gddl.platform_check.dag.PlatformCheckTrigger"
    for _ in range(2):
        (event,) = asyncio.run(events(dag.PlatformCheckTrigger(**arguments)))
        assert {one["state"] for one in event.payload} <= {"PASS", "NOT TRIED"}


async def events(trigger: dag.PlatformCheckTrigger) -> list[TriggerEvent]:
    return [event async for event in trigger.run()]


def test_an_answer_is_given_once_and_an_error_does_not_break_the_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag.answer("abc", None)
    (answer,) = (stage.lake / FOLDER).rglob("answer.json")
    first = answer.read_bytes()
    monkeypatch.setattr(course, "of_storage", lambda _: pytest.fail("it was answered"))
    dag.answer("abc", None)
    assert answer.read_bytes() == first
    monkeypatch.setattr(dag, "is_dag_processor", lambda: True)
    monkeypatch.setattr(Variable, "get", lambda *_, **__: "not JSON")
    dag.answer_as_dag_processor("d", None)


def test_a_dag_processor_that_was_killed_spoils_no_later_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does another one that answers at once. `results` removes what it left, and nothing of other runs."""
    folder, run = stage.lake / FOLDER, dag.run_name("mine")
    with monkeypatch.context() as killed:
        killed.setattr(course, "removed", lambda _: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            dag.answer(run, None)
    (left,) = (path.name for path in folder.iterdir())
    assert left.startswith(f"{run}-dag-processor-")
    dag.answer(run, None)
    (answer,) = folder.rglob("answer.json")
    assert {one["state"] for one in json.loads(answer.read_bytes())} <= {"PASS", "NOT TRIED"}
    other = folder / f"{dag.run_name('other')}-dag-processor-0"
    other.mkdir()
    (folder / f"{run}-dag-processor-a b").mkdir()  # of somebody else: no check names a folder so
    results = made().get_task("results")
    assert isinstance(results, dag.Results)
    nothing: Any = {"run_id": "mine", "ti": SimpleNamespace(xcom_pull=lambda **_: None)}
    monkeypatch.setattr(Variable, "get", lambda _, default: default)
    with pytest.raises(AirflowFailException):
        results.execute(nothing)
    assert sorted(folder.iterdir()) == sorted([other, folder / f"{run}-dag-processor-a b"])


def test_entries_of_a_worker_that_was_killed_are_removed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with unity_server() as world:
        catalogs = {"main": {"kind": "unity", "url": world.url, "catalog_name": "lake"}}
        settings = stage.metadata / "gddl.yaml"
        settings.write_text(f"{settings.read_text()}\ncatalogs: {json.dumps(catalogs)}\n")
        worker = dag.context_in_airflow("worker", dag.run_name("mine"), None, dag.Bounds())
        begin(worker, "main", is_remote=False)
        schema = f"lake.{database_of(worker.place.root, 'main')}"
        location = worker.place.below("lake-catalog-main", "t")
        world.schemas[schema] = {}
        world.tables[f"{schema}.t"] = {"name": "t", "storage_location": f"file://{location}"}
        results = made().get_task("results")
        assert isinstance(results, dag.Results)
        monkeypatch.setattr(Variable, "get", lambda _, default: default)
        nothing: Any = {"run_id": "mine", "ti": SimpleNamespace(xcom_pull=lambda **_: None)}
        with pytest.raises(AirflowFailException):
            results.execute(nothing)
        assert (world.schemas, world.tables) == ({}, {})
    assert not (stage.lake / FOLDER).exists()


@pytest.mark.parametrize(
    ("question", "answer"),
    [("not JSON", None), (None, [{"check": "storage.write", "state": "?"}]), (None, [{"check": "?", "state": "PASS"}])],
)
def test_all_is_removed_whatever_was_answered(
    question: str | None, answer: list[dict[str, str]] | None, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes Variables, or to the lake, can forge a question and an answer."""
    for origin in ("worker", "triggerer", "dag-processor"):
        (stage.lake / FOLDER / f"{dag.run_name('mine')}-{origin}").mkdir(parents=True)
    results = made().get_task("results")
    assert isinstance(results, dag.Results)
    monkeypatch.setattr(Variable, "get", lambda *_, **__: question)
    forged: Any = {"run_id": "mine", "ti": SimpleNamespace(xcom_pull=lambda **_: answer)}
    with pytest.raises((ValueError, FatalError)):
        results.execute(forged)
    assert not (stage.lake / FOLDER).exists()


@pytest.mark.parametrize(("seconds", "is_answered"), [(60, True), (-60, False)])
def test_the_question_names_no_place_and_is_answered_while_a_run_waits(
    seconds: float, is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write Variables leads the DAG processor to no metadata of theirs."""
    question = json.dumps({"run": "abc", "until": time.time() + seconds, "metadata": "/elsewhere"})
    monkeypatch.setattr(dag, "is_dag_processor", lambda: True)
    monkeypatch.setattr(Variable, "get", lambda *_, **__: question)
    answered: list[tuple[str, str | None]] = []
    monkeypatch.setattr(dag, "answer", lambda run, metadata: answered.append((run, metadata)))
    dag.platform_check("/the/file's")
    assert answered == ([("abc", "/the/file's")] if is_answered else [])


@pytest.mark.parametrize(("run", "left"), [("mine", []), ("another's", ["gddl_platform_check"])])
def test_the_question_of_a_worker_that_was_killed_is_withdrawn(
    run: str, left: list[str], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = made().get_task("results")
    assert isinstance(results, dag.Results)
    variables = {"gddl_platform_check": json.dumps({"run": dag.run_name(run), "until": 0})}

    def get(key: str, default: None) -> str | None:
        return variables.get(key, default)

    monkeypatch.setattr(Variable, "get", get)
    monkeypatch.setattr(Variable, "delete", variables.pop)
    nothing: Any = {"run_id": "mine", "ti": SimpleNamespace(xcom_pull=lambda **_: None)}
    with pytest.raises(AirflowFailException):
        results.execute(nothing)
    assert list(variables) == left


def test_a_triggerer_that_does_not_answer_fails_the_task_at_once() -> None:
    """Airflow's own limit of a task does not count while it is deferred."""
    task = made(minutes=3).get_task("triggerer")
    assert isinstance(task, dag.TriggererChecks)
    nothing: Any = {"run_id": "a"}
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(nothing)
    assert deferred.value.timeout == timedelta(minutes=6)
    with pytest.raises(AirflowFailException, match="did not answer in 6 minutes"):
        task.resume_execution("__fail__", {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, nothing)
    assert task.resume_execution("resume", {"event": [{"check": "x"}]}, nothing) == [{"check": "x"}]


def test_the_dag_is_the_same_each_time() -> None:
    assert serialised(made()) == serialised(made())


def test_names_of_folders_hold_nothing_of_the_run() -> None:
    assert dag.run_name("manual__2024-01-01T00:00:00+00:00/é") == dag.run_name("manual__2024-01-01T00:00:00+00:00/é")
    assert dag.run_name("a") != dag.run_name("b")
    assert dag.run_name("x y/..").isalnum()
