"""The first task of a pipeline: finds the tables that have work."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.triggers.base import StartTriggerArgs

from airflow_gddl import configuration
from airflow_gddl.assets import alias_of
from airflow_gddl.version_compat import STARTS_FROM_TRIGGER, TaskDeferred

_TRIGGER = "airflow_gddl.triggers.GddlTablesTrigger"


class GddlTablesSensor(BaseSensorOperator):
    """Polls the landing folders of a pipeline's tables once; its result is a `PipelineWork` in plain data.

    Skipped when no table has work. It occupies no worker while it waits: it runs in the triggerer, from the start where
    Airflow hands a trigger the run's params; elsewhere the first poll is in a worker. The class imports little, since
    every parse and every task of a DAG imports it.

    Args:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        forever: wait until some table has work.
        deferrable: poll in the triggerer; None: as `[gddl] deferrable` says. In the task's own process otherwise.
        polls: see `poll_times`; None: as configured.
    """

    template_fields: Sequence[str] = ("run_params", "run_id", "try_number")
    ui_color = "#dcefe6"

    def __init__(
        self,
        *,
        metadata: str,
        pipeline: str,
        forever: bool = False,
        deferrable: bool | None = None,
        polls: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(outlets=[alias_of(pipeline)], **kwargs)
        self.metadata = metadata
        self.pipeline = pipeline
        self.forever = forever
        self.polls = poll_times() if polls is None else polls
        self.run_params = "{{ params | tojson }}"
        self.run_id = "{{ run_id }}"
        self.try_number = "{{ ti.try_number }}"
        self.deferrable = configuration.is_deferrable() if deferrable is None else deferrable
        self.start_from_trigger = STARTS_FROM_TRIGGER and self.deferrable
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=_TRIGGER,
            trigger_kwargs=self._arguments(),
            next_method="polled",
            timeout=self.execution_timeout,
        )

    def execute(self, context: Context) -> None:
        """Used only where a task does not start in the triggerer.

        Raises:
            TaskDeferred: no table has work yet, and it is to wait for some; else as `polled`.
        """
        from airflow_gddl.triggers import GddlTablesTrigger, run_in_task  # noqa: PLC0415 - see the class

        trigger = GddlTablesTrigger(**self._arguments())
        deferred = TaskDeferred(trigger=trigger, method_name="polled", timeout=self.execution_timeout)
        if not self.deferrable:
            run_in_task(self, context, deferred)
            return
        # A scheduler that learns of the deferral only after the trigger's event fails the task (apache/airflow#66374,
        # #72716): the triggerer gets only what must wait.
        if (event := trigger.event_at_once()) is None:
            raise deferred
        self.polled(context, event.payload)

    def polled(self, context: Context, event: Mapping[str, Any] | str) -> None:
        """Resume after the triggerer.

        Args:
            event: see `GddlTablesTrigger`; a string when the trigger ended the task itself, as in `DAG.test`.

        Raises:
            DownstreamTasksSkipped: the task succeeded, and a load has no work.
            AirflowSkipException, AirflowException, AirflowFailException.
        """
        importlib.import_module("airflow_gddl.sensors.trigger_event").answer(self, context, event)

    def _arguments(self) -> dict[str, Any]:
        return {
            "metadata": self.metadata,
            "pipeline": self.pipeline,
            "run_params": self.run_params,
            "run_id": self.run_id,
            "try_number": self.try_number,
            "forever": self.forever,
            **self.polls,
        }


def poll_times() -> dict[str, float]:
    """Seconds between two polls, and of all of them together, as configured."""
    return {
        "poll_seconds": configuration.number("poll_seconds"),
        "patience_seconds": configuration.number("dependency_wait_seconds"),
    }
