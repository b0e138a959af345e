"""Waiting in the task's own process instead of the triggerer (`[gddl] deferrable`)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from airflow.sdk import Context
from airflow.triggers.base import TriggerEvent

from airflow_gddl.version_compat import AirflowException, TaskDeferred

_TIME_TO_CANCEL = 60.0


def run_in_task(operator: Any, context: Context, deferred: TaskDeferred) -> Any:
    """The result of a task whose triggers run here, one after the other; it holds its slot meanwhile.

    Airflow's `execution_timeout` and a stop of the task end it like any other. `operator.stop` then cancels what the
    trigger watches.

    Raises:
        AirflowException: the task was stopped; as `resumed` and `polled`.
    """
    while True:
        waiting = _Waiting(deferred.trigger)
        waiting.trigger.task_instance = context["ti"]
        operator.stop = waiting.stop
        event = asyncio.run(waiting.first_event())
        if waiting.stopped:  # its run has ended, and another must not be started
            raise AirflowException("the task was stopped")
        try:
            return getattr(operator, deferred.method_name)(context, event.payload, **(deferred.kwargs or {}))
        except TaskDeferred as again:
            deferred = again


class _Waiting:
    def __init__(self, trigger: Any) -> None:
        self.trigger = trigger
        self.stopped = False

    async def first_event(self) -> TriggerEvent:
        events = self.trigger.run()
        try:
            return await anext(events)
        finally:
            await events.aclose()

    def stop(self) -> None:
        """Called by the signal that stops the task, beside the trigger's loop, where connections can't be asked for."""
        self.stopped = True
        if cancel := getattr(self.trigger, "cancel", None):
            thread = threading.Thread(target=cancel)
            thread.start()
            thread.join(_TIME_TO_CANCEL)
