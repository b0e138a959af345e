"""The checks in Airflow: a DAG whose tasks make them on a worker, in the triggerer and in the DAG processor.

The DAG processor runs no tasks. While a run waits for it, a Variable asks it, and it makes the checks as it reads the
DAG file. At all other times the file costs it one look at that Variable. The Variable has the id of the DAG, and holds
the name of the run's folders and when the run stops waiting; where the folders are is the DAG file's to say, so that
whoever may write Variables leads the DAG processor nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context, Variable
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_gddl import configuration
from airflow_gddl.cli import context
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.screen import Screen
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import join
from airflow_gddl.hooks.aws import FromAirflow
from airflow_gddl.platform_check import course
from airflow_gddl.platform_check.checks import FoundError, Origin, Outcome, failed
from airflow_gddl.platform_check.command import announcement
from airflow_gddl.platform_check.dag_file import DAG_ID
from airflow_gddl.platform_check.place import Bounds, CheckContext, context_of, folders_of_checks
from airflow_gddl.platform_check.report import report, show, summary, text
from airflow_gddl.stores import read_if_there
from airflow_gddl.version_compat import AirflowFailException, TaskDeferralTimeout

_PROCESSOR = "airflow.dag_processing.processor"
_ANSWER = "answer.json"
_LOG = logging.getLogger(__name__)
ORIGINS: Mapping[str, Origin] = {"worker": "worker", "triggerer": "triggerer", "dag_processor": "dag processor"}
"""Where the checks are made, by the id of the task."""


def platform_check(metadata: str | None = None, *, minutes: float = 10.0, dag_id: str = DAG_ID) -> DAG:
    """The DAG; call it once in a DAG file.

    Args:
        metadata: folder; None: the configured one, as for `build_dags`.
        minutes: of the checks of a worker; the run as a whole may take a little more.
    """
    answer_as_dag_processor(dag_id, metadata)
    limit = timedelta(minutes=minutes)
    with DAG(
        dag_id,
        schedule=None,
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["gddl"],
        doc_md=__doc__,
    ) as dag:
        shared: dict[str, Any] = {"metadata": metadata, "minutes": minutes, "execution_timeout": 2 * limit}
        tried = [
            WorkerChecks(task_id="worker", retries=0, **shared),
            # A trigger that fires before the scheduler has noted the deferral fails its task: Airflow's own race.
            TriggererChecks(task_id="triggerer", retries=2, retry_delay=timedelta(seconds=5), **shared),
            ProcessorChecks(task_id="dag_processor", retries=0, **shared),
        ]
        tried >> Results(task_id="results", trigger_rule="all_done", retries=0, **shared)
    return dag


def context_in_airflow(origin: Origin, run: str, metadata: str | None, bounds: Bounds) -> CheckContext:
    """What the checks of this process work with; credentials are those that tasks of loads have.

    Args:
        run: see `run_name`.
    """
    place = configuration.own_metadata_place(metadata)
    cli = replace(context.real(), environ=configuration.environ_for(place), job_command=configuration.job_command())
    loaded = metadata_folder.read(cli, place)
    roots = (loaded.roots.landing, loaded.roots.lake, *loaded.landings.values())
    environ = configuration.environ_for(*roots, aws_conn_id=loaded.aws_conn_id or "")
    environ = configuration.with_credentials(environ, loaded.access, loaded.catalogs.values())
    name = f"{run}-{origin.replace(' ', '-')}"
    made = context_of(replace(cli, environ=environ), loaded, bounds, name=name, origin=origin)
    return replace(made, connections=FromAirflow())


def run_name(run_id: str) -> str:
    """The beginning of the names of a run's folders: ids of runs may hold any character."""
    return hashlib.blake2b(run_id.encode(), digest_size=8).hexdigest()


def is_dag_processor() -> bool:
    """Whether the DAG processor reads the DAG file; workers read it, too."""
    return any(frame.f_globals.get("__name__") == _PROCESSOR for frame, _ in traceback.walk_stack(None))


def answer_as_dag_processor(dag_id: str, metadata: str | None) -> None:
    """Make the checks that a run waits for, once; an error never breaks the DAG file.

    A question whose run has stopped waiting, as where its worker was killed, is not answered.
    """
    if not is_dag_processor():
        return
    try:
        asked = Variable.get(dag_id, default=None)
        if asked is not None and (question := json.loads(asked))["until"] > time.time():
            answer(question["run"], metadata)
    except Exception:  # noqa: BLE001 - the other DAGs of the file, and the run's own message, are worth more
        _LOG.exception("the DAG processor could not make the checks of %s", dag_id)


def answer(run: str, metadata: str | None) -> None:
    """Make the checks of storage, and leave the outcomes where the run looks for them.

    Each time in a folder of its own: another DAG processor may do so at once, or one was killed while it did.
    """
    bounds = Bounds(minutes=3 * configuration.parse_seconds() / 60)
    made = context_in_airflow("dag processor", run, metadata, bounds)
    place = join(made.place.root, _ANSWER)
    if read_if_there(made.store, place) is None:
        own = replace(made, place=replace(made.place, name=f"{made.place.name}-{secrets.token_hex(4)}"))
        outcomes = course.of_storage(own)
        course.removed(own)
        made.store.create(place, json.dumps([plain(one) for one in outcomes]).encode())


class _Operator(BaseOperator):
    """A task of the DAG.

    Args:
        metadata, minutes: see `platform_check`.
    """

    def __init__(self, *, metadata: str | None, minutes: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.metadata, self.minutes = metadata, minutes

    def made(self, airflow: Context) -> CheckContext:
        run, bounds = run_name(str(airflow["run_id"])), Bounds(minutes=self.minutes)
        return context_in_airflow(ORIGINS.get(self.task_id, "worker"), run, self.metadata, bounds)


class WorkerChecks(_Operator):
    """All checks, in the task's process."""

    def execute(self, context: Context) -> list[dict[str, Any]]:
        outcomes: list[Outcome] = []

        def take(one: Outcome) -> None:
            outcomes.append(one)
            self.log.info("%s %s: %s", one.state, one.check, one.finding or one.reason)

        made = self.made(context)
        for line in announcement(made, processes=len(ORIGINS)):
            self.log.info(line)
        course.everything(made, take)
        return [plain(one) for one in outcomes]


class TriggererChecks(_Operator):
    """The checks of storage, in the triggerer.

    Raises:
        AirflowFailException: it did not answer; not tried again, since each try would wait as long.
    """

    def execute(self, context: Context) -> None:
        run = run_name(str(context["run_id"]))
        trigger = PlatformCheckTrigger(run=run, metadata=self.metadata, minutes=self.minutes)
        # Airflow's `execution_timeout` does not count while a task is deferred.
        self.defer(trigger=trigger, method_name="resume", timeout=self.execution_timeout)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout as error:
            raise AirflowFailException(f"the triggerer did not answer in {2 * self.minutes:g} minutes") from error

    def resume(self, context: Context, event: list[dict[str, Any]]) -> list[dict[str, Any]]:  # noqa: ARG002 - Airflow's
        return event


class PlatformCheckTrigger(BaseTrigger):
    """Makes the checks of storage once.

    Args:
        run: see `run_name`.
    """

    def __init__(self, *, run: str, metadata: str | None, minutes: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own has no annotations
        self.run_name, self.metadata, self.minutes = run, metadata, minutes

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"run": self.run_name, "metadata": self.metadata, "minutes": self.minutes}
        return f"{type(self).__module__}.{type(self).__name__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: the outcomes."""
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - of the triggerer, which has it

        made = sync_to_async(self._outcomes, thread_sensitive=False)
        yield TriggerEvent(await made())

    def _outcomes(self) -> list[dict[str, Any]]:
        bounds = Bounds(minutes=self.minutes)
        made = context_in_airflow("triggerer", self.run_name, self.metadata, bounds)
        course.removed(made)  # what an earlier try left
        return [plain(one) for one in course.of_storage(made)]


class ProcessorChecks(_Operator):
    """Asks the DAG processor for the checks of storage, and waits for its answer.

    Raises:
        FoundError: none came in time.
    """

    poll_seconds = 5.0

    def execute(self, context: Context) -> list[dict[str, Any]]:
        made = self.made(context)
        place = join(made.place.root, _ANSWER)
        asked = {"run": run_name(str(context["run_id"])), "until": time.time() + made.seconds_left}
        Variable.set(self.dag_id, json.dumps(asked), description="asks the DAG processor for the checks of a run")
        try:
            while made.seconds_left > 0:
                if (answered := read_if_there(made.store, place)) is not None:
                    return list(json.loads(answered))
                time.sleep(self.poll_seconds)
        finally:
            Variable.delete(self.dag_id)
        raise FoundError(f"no answer in {self.minutes:g} minutes")


class Results(_Operator):
    """Removes what the others made, shows the outcomes of all as one table, and fails where a check failed.

    Raises:
        AirflowFailException: a check failed.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        made = self.made(context)
        try:
            self._withdraw(run_name(str(context["run_id"])))
        finally:  # whatever the Variable, and below an answer from the lake or of another version, holds
            removals = [self._cleanup(made, origin) for origin in ORIGINS.values()]
        outcomes = [one for task in ORIGINS for one in of_task(task, context["ti"].xcom_pull(task_ids=task))]
        outcomes += removals
        outcomes = course.in_order([*outcomes, *course.left_out(outcomes)])
        screen, content = Screen(), report(made, outcomes)
        show(screen, outcomes)
        screen.say(f"{summary(outcomes)}. For an issue, without names, ids and addresses:")
        screen.dictate(text(content))
        if any(one.state == "FAIL" for one in outcomes):
            raise AirflowFailException(summary(outcomes))
        return content

    def _withdraw(self, run: str) -> None:
        """Remove the question to the DAG processor, which a worker that was killed leaves."""
        asked = Variable.get(self.dag_id, default=None)
        if asked is not None and json.loads(asked)["run"] == run:
            Variable.delete(self.dag_id)

    @staticmethod
    def _cleanup(made: CheckContext, origin: Origin) -> Outcome:
        """Remove the folder of a process, and those of DAG processors that were killed."""
        name = made.place.name.removesuffix("worker") + origin.replace(" ", "-")
        with suppress(GddlError):  # the removal of the folder itself meets it again
            for left in folders_of_checks(made.store, made.place.lake):
                if left.startswith(f"{name}-"):
                    course.removed(replace(made, place=replace(made.place, name=left), origin=origin))
        return course.removed(replace(made, place=replace(made.place, name=name), origin=origin))


def of_task(task: str, found: Sequence[Mapping[str, Any]] | None) -> list[Outcome]:
    """Outcomes of a task, with one for the process that made the checks.

    Args:
        found: what the task returned; None: it failed.
    """
    outcomes = [decode(Outcome, dict(one)) for one in found or ()]
    check, origin = f"airflow.{task}", ORIGINS[task]
    if check not in course.AIRFLOW:
        return outcomes
    if not outcomes:
        silent = FoundError(f"the task {task} has no result")
        return [failed(check, silent, origin=origin, seconds=0.0)]
    seconds = sum(one.seconds for one in outcomes)
    passed = Outcome(check=check, state="PASS", origin=origin, finding="it answered", seconds=seconds)
    return [passed, *outcomes]
