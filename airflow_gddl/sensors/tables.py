"""The first task of a pipeline: which of its tables have work?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.triggers.base import StartTriggerArgs

from airflow_gddl import configuration
from airflow_gddl.announcing import announce
from airflow_gddl.assets import alias_of
from airflow_gddl.capabilities import (
    STARTS_FROM_TRIGGER,
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.landing.asked import from_params
from airflow_gddl.landing.observing import Question
from airflow_gddl.landing.work import Work
from airflow_gddl.triggers.tables import LOOK_ON_WORKER, GddlTablesTrigger, look_once, utc_now

_TRIGGER = f"{GddlTablesTrigger.__module__}.{GddlTablesTrigger.__name__}"


class GddlTablesSensor(BaseSensorOperator):
    """Looks once at the landing folders of a pipeline's tables; its answer is a `Work` in plain data.

    Skipped when no table has work. It holds no worker while it looks or waits: it runs in the triggerer, from the start
    where Airflow hands a trigger the run's params.

    Args:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        forever: wait until some table has work.
    """

    template_fields: Sequence[str] = ("asked", "run_id")
    ui_color = "#dcefe6"

    def __init__(self, *, metadata: str, pipeline: str, forever: bool = False, **kwargs: Any) -> None:
        super().__init__(outlets=[alias_of(pipeline)], **kwargs)
        self.metadata = metadata
        self.pipeline = pipeline
        self.forever = forever
        self.asked = "{{ params | tojson }}"
        self.run_id = "{{ run_id }}"
        self.start_from_trigger = STARTS_FROM_TRIGGER
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=_TRIGGER, trigger_kwargs=self._trigger().serialize()[1], next_method="looked"
        )

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        """Only where a task can't start in the triggerer.

        Raises:
            TaskDeferred: always.
        """
        self.defer(trigger=self._trigger(), method_name="looked")

    def looked(self, context: Context, event: Mapping[str, Any] | str) -> None:
        """Back from the triggerer.

        Args:
            event: see `GddlTablesTrigger`; a text when the trigger ended the task itself, as in `DAG.test`.

        Raises:
            DownstreamTasksSkipped: the task succeeded, and there is nothing for initial_load.
            AirflowSkipException, AirflowException, AirflowFailException.
        """
        if isinstance(event, str):
            raise AirflowSkipException("no table has work")
        if "error" in event:
            raise (AirflowException if event["passing"] else AirflowFailException)(event["error"])
        work = self._look_here(context) if event == LOOK_ON_WORKER else decode(Work, event)
        self._tell(work)
        if work.pending:
            announce(context, self.metadata, self.pipeline)
        context["ti"].xcom_push(key="return_value", value=plain(work))
        if not work.initial:
            # Spares the start of a task that would only skip itself. Not the other: a run is as red as its last task.
            raise DownstreamTasksSkipped(tasks=self._tasks_of("initial"))

    def _tasks_of(self, stage: str) -> list[str]:
        return [task.task_id for task in self.get_direct_relatives() if getattr(task, "stage", None) == stage]

    def poke(self, context: Context) -> bool:
        """For `airflow tasks test` and the like: whether any table has work now."""
        return self._look_here(context).is_some

    def _look_here(self, context: Context) -> Work:
        asked = from_params(context["params"])
        try:
            work = look_once(self.metadata, self.pipeline, Question(run=context["run_id"], now=utc_now(), asked=asked))
        except RetriableError as error:
            raise AirflowException(str(error)) from error
        except GddlError as error:
            raise AirflowFailException(str(error)) from error
        if work is None:
            state = configuration.snapshot(self.metadata).state
            why = f" ({state.why})" if state.why else ""
            raise AirflowFailException(f"the metadata at {self.metadata} has no pipeline {self.pipeline}{why}")
        if not work.is_some:
            raise AirflowSkipException("no table has work")
        return work

    def _tell(self, work: Work) -> None:
        self.log.info("%d tables to load first, %d to bring up to date", len(work.initial), len(work.increments))
        for table, others in work.held.items():
            self.log.warning("%s waits for %s, which it depends on", table, ", ".join(others))
        for table, others in work.unmet.items():
            self.log.warning("%s goes on without %s: no pipeline loads it", table, ", ".join(others))

    def _trigger(self) -> GddlTablesTrigger:
        return GddlTablesTrigger(
            metadata=self.metadata,
            pipeline=self.pipeline,
            asked=self.asked,
            run_id=self.run_id,
            forever=self.forever,
            poll_seconds=configuration.number("poll_seconds"),
            patience_seconds=configuration.number("dependency_wait_seconds"),
        )
