"""Triggers: for new files in landing folders, tables that have work, and runs elsewhere; and the wait in the task."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Context
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TaskSkippedEvent, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import results_folder, standing_folder, stop_path
from airflow_gddl.hooks.aws import FromAirflow
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline, RemoteJobMonitor
from airflow_gddl.runners.descriptor import make_platform
from airflow_gddl.runners.interface import Platform, RunStatus, WaitPolicy
from airflow_gddl.runners.remote import Attempts, TaskKey, cancel, pauses, polled
from airflow_gddl.runtime.landing.polling import Poll, poll
from airflow_gddl.runtime.landing.run_request import from_params
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question, observe
from airflow_gddl.runtime.state.recording import end_running
from airflow_gddl.stores import open_store
from airflow_gddl.version_compat import TELLS_TRIGGERS_OF_KILLS, AirflowException, TaskDeferred, is_still_deferred


class GddlFilesTrigger(BaseEventTrigger):
    """Fires an event whenever files in the landing folders of some tables are added, removed or changed.

    Files that exist at the start fire no event. The payload names the tables: `{"tables": ["shop.orders"]}`.

    Args:
        landing: root of the landing folders, local or `s3://`.
        tables: `schema.name` each.
        poll_seconds: time between two polls.
        aws_conn_id: connection that reaches S3; empty: the configured one, else environment or role.
    """

    def __init__(self, *, landing: str, tables: list[str], poll_seconds: float = 60.0, aws_conn_id: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own has no annotations
        self.landing, self.tables, self.poll_seconds = landing, sorted(tables), poll_seconds
        self.aws_conn_id = aws_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("landing", "tables", "poll_seconds", "aws_conn_id")
        return f"{type(self).__module__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Runs until cancelled; retries while the store does not respond."""
        before = await self._poll()
        while True:
            await asyncio.sleep(self.poll_seconds)
            now = await self._poll()
            if before is not None and now is not None:
                changed = [table for table in self.tables if now[table].digest != before[table].digest]
                if changed:
                    yield TriggerEvent({"tables": changed})
            before = now or before

    async def _poll(self) -> dict[str, Poll] | None:
        try:
            store = open_store(configuration.environ_for(self.landing, aws_conn_id=self.aws_conn_id))
            return await sync_to_async(poll, thread_sensitive=False)(store, self.landing, self.tables)
        except RetriableError as error:
            self.log.warning("%s", error)
            return None


FIRST_PAUSE = 5.0
"""Seconds between the first two polls of a remote run."""
KEPT_EVERY = 10.0
"""Seconds between two polls of the tables of a continuous job; its run is polled at growing intervals."""
LOGGED_EVERY = 30.0
"""Seconds between two lines of progress."""
TIME_TO_END = timedelta(minutes=15)
"""For a run that is cancelled at its time limit; then Airflow fails the task."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """The run to watch and its location; contains no secrets, since Airflow stores it in its database.

    Attributes:
        runner: name of the runner.
        settings: its settings in the metadata.
        lake: root of the lake that stores the submissions.
        task: owner of the run.
        aws_conn_id: connection that reaches the lake; empty: the configured one, if any.
        begun: state of the task that is returned when it resumes, since `DAG.test` drops the trigger's kwargs.
        kept: owner of a continuous job, for its monitor; None: an ordinary job.
        ends: when the run is cancelled because its task has reached its time limit, in seconds of the epoch; None:
            never.
    """

    runner: str
    settings: Mapping[str, Any]
    lake: str
    task: TaskKey
    run: WaitPolicy
    begun: Mapping[str, Any]
    aws_conn_id: str = ""
    kept: MonitoredPipeline | None = None
    ends: float | None = None


def ends_at(limit: timedelta | None) -> float | None:
    """See `Watch.ends`."""
    return None if limit is None else time.time() + limit.total_seconds()


class GddlRunTrigger(BaseTrigger):
    """Polls a run at growing intervals until it has ended; restarts a run that failed because of the platform.

    The event's payload has `begun`, and `state`, or `error` after a permanent error: then the task polls the run itself
    and fails. All that it needs is in its argument, so that it can resume in any triggerer, without metadata.

    Args:
        watch: a `Watch` in plain data.
    """

    def __init__(self, *, watch: Mapping[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own has no annotations
        self.watch = watch
        self._began = self._logged = time.monotonic()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__name__}", {"watch": dict(self.watch)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event."""
        try:
            yield TriggerEvent({"begun": self._watch.begun, "state": await self._ended()})
        except GddlError as error:
            yield TriggerEvent({"begun": self._watch.begun, "error": str(error)})
        except asyncio.CancelledError:
            # Where Airflow does not report why it cancels: a triggerer that shuts down leaves the task unchanged.
            if not TELLS_TRIGGERS_OF_KILLS and not await is_still_deferred(self.task_instance):
                await self.on_kill()
            raise

    async def on_kill(self) -> None:
        """Cancel the run after a user marked or cleared its task; the next try starts a new run."""
        try:
            await sync_to_async(self.cancel, thread_sensitive=False)()
        except GddlError as error:
            self.log.warning("run %s could not be cancelled: %s", self._watch.run.handle.run, error)

    @property
    def _watch(self) -> Watch:
        return decode(Watch, self.watch)

    async def _ended(self) -> str:
        # Calls block; the triggerer's loop serves other triggers meanwhile. `sync_to_async`, not `to_thread`: from its
        # threads Airflow's connections can be asked for in every version.
        platform = await sync_to_async(self._platform, thread_sensitive=False)()
        announced, ending = False, False
        keeper = self._keeper()
        for pause in pauses(FIRST_PAUSE):
            remaining = self.seconds_left()
            if remaining <= 0 and not ending:  # before the poll: no later one may start the run again
                ending = await sync_to_async(self._time_out, thread_sensitive=False)(platform)
            status = await sync_to_async(self._poll, thread_sensitive=False)(platform, restart=remaining > 0)
            if status is not None and status.has_ended:
                return status.state
            if status is not None and status.state == "running" and not announced:
                announced = True
                await sync_to_async(self._tell_links, thread_sensitive=False)(platform)
            await self._rest(min(pause, remaining) if remaining > 0 else FIRST_PAUSE, keeper)
        raise AssertionError("pauses have no end")

    async def _rest(self, seconds: float, keeper: RemoteJobMonitor | None) -> None:
        """Wait until the next poll; a continuous job is monitored in the meantime."""
        ends = time.monotonic() + seconds
        while (remaining := ends - time.monotonic()) > 0:
            if keeper is not None:
                await sync_to_async(keeper.tick, thread_sensitive=False)()
            await self._log_progress()
            until_line = self._logged + LOGGED_EVERY - time.monotonic()
            await asyncio.sleep(max(0.0, min(remaining, until_line, remaining if keeper is None else KEPT_EVERY)))

    async def _log_progress(self) -> None:
        """Log a line periodically during a long run."""
        now = time.monotonic()
        if now - self._logged < LOGGED_EVERY:
            return
        self._logged = now
        done = await sync_to_async(self._tables_done, thread_sensitive=False)()
        run = self._watch.run.handle.run
        self.log.info("run %s is watched since %.0f s%s", run, now - self._began, done)

    def _tables_done(self) -> str:
        """Number of tables with a result; empty if unreadable, and for a continuous job."""
        watch = self._watch
        if watch.kept is not None:
            return ""
        try:
            store = open_store(self._environ())
            submission = Attempts(store, watch.lake, watch.task).submission(watch.run.number)
            answers = sum(1 for _ in store.list(results_folder(watch.lake, submission.run_id)))
        except GddlError as error:
            self.log.warning("the progress of run %s can't be read: %s", watch.run.handle.run, error)
            return ""
        return f", {answers} of {len(submission.tables)} tables done"

    def seconds_left(self) -> float:
        """Seconds until the time limit of the task; infinity: it has none."""
        ends = self._watch.ends
        return math.inf if ends is None else ends - time.time()

    def _time_out(self, platform: Platform) -> bool:
        """Cancel the run, which is watched until it has ended; false: to be tried again."""
        watch = self._watch
        self.log.warning("run %s has reached the time limit of its task and is cancelled", watch.run.handle.run)
        try:
            cancel(platform, Attempts(open_store(self._environ()), watch.lake, watch.task), watch.run, "timeout")
        except GddlError as error:
            self.log.warning("run %s could not be cancelled: %s", watch.run.handle.run, error)
            return not isinstance(error, RetriableError)
        return True

    def _poll(self, platform: Platform, *, restart: bool) -> RunStatus | None:
        """Null when the platform does not respond: the run continues unwatched."""
        handle = self._watch.run.handle
        try:
            status = polled(platform, handle, restart=restart)
        except RetriableError as error:
            self.log.warning("run %s could not be polled: %s", handle.run, error)
            return None
        if status.restartable:
            self.log.info("run %s is restarted: %s", handle.run, status.message)
        return status

    def _keeper(self) -> RemoteJobMonitor | None:
        watch, kept = self._watch, self._watch.kept
        if kept is None:
            return None
        run = {"dag_id": kept.pipeline, "run_id": kept.run}
        task = self.task_instance
        context: Any = {"run_id": kept.run, "dag_run": run, "ti": task, "task_instance": task, "params": {}}
        return RemoteJobMonitor(kept, watch.lake, self._environ(), self.log, context)

    def _environ(self) -> Mapping[str, str]:
        return configuration.environ_for(self._watch.lake, aws_conn_id=self._watch.aws_conn_id)

    def _tell_links(self, platform: Platform) -> None:
        """In the task's log: pages that lead to what the platform itself keeps of a run."""
        for name, url in platform.links(self._watch.run.handle).items():
            self.log.info("%s: %s", name, url)

    def cancel(self) -> None:
        """Cancel the run, or ask a continuous job to end. Blocks.

        Raises:
            GddlError: the lake or the platform does not respond.
        """
        watch = self._watch
        store = open_store(self._environ())
        attempts = Attempts(store, watch.lake, watch.task)
        if watch.kept is None:
            end_running(store, watch.lake, watch.task.pipeline, watch.task.run)
            cancel(self._platform(), attempts, watch.run)
            return
        # The run finishes its current batch; if it misses the stop request, the next try cancels it.
        attempts.mark(watch.run.number, "stop")
        store.write(stop_path(standing_folder(watch.lake, watch.kept.pipeline), watch.kept.job), b"")

    def _platform(self) -> Platform:
        watch = self._watch
        return make_platform(watch.runner, watch.settings, os.environ, FromAirflow())


POLL_ON_WORKER = {"look": "on_worker"}
"""Payload when this machine has no metadata of the pipeline: the task polls itself."""
_FAILURES_BORNE = 3


def poll_once(metadata: str, dag_id: str, question: Question) -> PipelineWork | None:
    """Poll the pipeline with the current metadata; None when there is no such pipeline. Blocks.

    Raises:
        RetriableError, FatalError: as `Storage`; `CACHE_UNUSABLE`, `OPTION_INVALID`, `AWS_CONNECTION_INVALID`.
    """
    document = configuration.compiled_metadata(metadata).pipeline(dag_id)
    if document is None:
        return None
    environ = configuration.environ_of(document)
    return observe(document, question, environ, configuration.following(environ))


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


class GddlTablesTrigger(BaseTrigger):
    """Polls once, or with `forever` repeatedly.

    The event's payload is a `PipelineWork` in plain data. When nothing has work, the task ends here, skipped, without a
    worker.

    Args:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        run_params: the run's params as JSON, or a template that gives it.
        run_id: the run's id, or a template that gives it.
        try_number: of the sensor, or a template that gives it.
        forever: poll until there is work.
        poll_seconds: time between two polls.
        patience_seconds: how long to wait for tables of `depends_on` when there is nothing else to do.
    """

    def __init__(  # noqa: PLR0913 - Airflow rebuilds a trigger from the keywords that `serialize` gives
        self,
        *,
        metadata: str,
        pipeline: str,
        run_params: str,
        run_id: str,
        try_number: str = "1",
        forever: bool,
        poll_seconds: float,
        patience_seconds: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own has no annotations
        self.metadata, self.pipeline, self.run_params, self.run_id = metadata, pipeline, run_params, run_id
        self.try_number = try_number
        self.forever, self.poll_seconds, self.patience_seconds = forever, poll_seconds, patience_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = (
            "metadata",
            "pipeline",
            "run_params",
            "run_id",
            "try_number",
            "forever",
            "poll_seconds",
            "patience_seconds",
        )
        return f"{type(self).__module__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Always yields one event: the task raises errors, so that retries are counted."""
        try:
            yield await self._answer()
        except GddlError as error:
            yield _failed(error)

    def event_at_once(self) -> TriggerEvent | None:
        """The event of a first poll, as `run` would yield it; None where that would wait. Blocks."""
        try:
            return self._event(self._poll(self._question()), self.patience_seconds > 0)
        except GddlError as error:
            return _failed(error)

    async def _answer(self) -> TriggerEvent:
        question = self._question()
        patience = time.monotonic() + self.patience_seconds
        while True:
            # Listing blocks; the triggerer's loop serves other triggers meanwhile, and answers for connections.
            work = await sync_to_async(self._poll, thread_sensitive=False)(question)
            if (event := self._event(work, time.monotonic() < patience)) is not None:
                return event
            first = dict.fromkeys(work.held, work.looked_at) if work else {}
            await asyncio.sleep(self.poll_seconds)
            since = {table: question.since.get(table, moment) for table, moment in first.items()}
            question = replace(question, now=utc_now(), since=since)

    def _question(self) -> Question:
        form = from_params(self.run_params)
        return Question(run=self.run_id, now=utc_now(), form=form, again=str(self.try_number) not in ("", "1"))

    def _event(self, work: PipelineWork | None, has_patience: bool) -> TriggerEvent | None:
        """What a poll's answer means; None: poll again later."""
        if work is None:
            return TriggerEvent(POLL_ON_WORKER)
        if work.is_some:
            return TriggerEvent(plain(work))
        if not work.refused and (self.forever or (work.held and has_patience)):
            return None
        self.log.info("nothing to do: %s", work.why_none)
        return TaskSkippedEvent()

    def _poll(self, question: Question) -> PipelineWork | None:
        """A poll that retries while the store does not respond."""
        for tried in range(1, _FAILURES_BORNE):
            try:
                return poll_once(self.metadata, self.pipeline, question)
            except RetriableError as error:
                self.log.warning("poll %d of %d failed: %s", tried, _FAILURES_BORNE, error)
                time.sleep(tried)
        return poll_once(self.metadata, self.pipeline, question)


def _failed(error: GddlError) -> TriggerEvent:
    return TriggerEvent({"error": str(error), "passing": isinstance(error, RetriableError)})


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
