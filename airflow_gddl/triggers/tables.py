"""Polls in the triggerer until tables of a pipeline have work, or finds that none has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSkippedEvent, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_gddl import configuration
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.runtime.landing.observing import Question, observe
from airflow_gddl.runtime.landing.run_request import from_params
from airflow_gddl.runtime.landing.work import PipelineWork

POLL_ON_WORKER = {"look": "on_worker"}
"""Payload when this machine has no metadata of the pipeline: the task polls itself."""
_FAILURES_BORNE = 3


def poll_once(metadata: str, dag_id: str, question: Question) -> PipelineWork | None:
    """Poll the pipeline with the current metadata; None when there is no such pipeline. Blocks.

    Raises:
        RetriableError, FatalError: as `Store`; `CACHE_UNUSABLE`, `REQUEST_INVALID`, `AWS_CONNECTION_INVALID`.
    """
    document = configuration.snapshot(metadata).pipeline(dag_id)
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
        asked: the run's params as JSON, or a template that gives it.
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
        asked: str,
        run_id: str,
        try_number: str = "1",
        forever: bool,
        poll_seconds: float,
        patience_seconds: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own has no annotations
        self.metadata, self.pipeline, self.asked, self.run_id = metadata, pipeline, asked, run_id
        self.try_number = try_number
        self.forever, self.poll_seconds, self.patience_seconds = forever, poll_seconds, patience_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("metadata", "pipeline", "asked", "run_id", "try_number", "forever", "poll_seconds", "patience_seconds")
        return f"{type(self).__module__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Always yields one event: the task raises errors, so that retries are counted."""
        try:
            yield await self._answer()
        except GddlError as error:
            yield TriggerEvent({"error": str(error), "passing": isinstance(error, RetriableError)})

    async def _answer(self) -> TriggerEvent:
        asked = from_params(self.asked)
        question = Question(run=self.run_id, now=utc_now(), asked=asked, again=str(self.try_number) not in ("", "1"))
        patience = time.monotonic() + self.patience_seconds
        while True:
            # Listing blocks; the triggerer's loop serves other triggers meanwhile, and answers for connections.
            work = await sync_to_async(self._poll, thread_sensitive=False)(question)
            if work is None:
                return TriggerEvent(POLL_ON_WORKER)
            if work.is_some:
                return TriggerEvent(plain(work))
            waits_for_others = bool(work.held) and time.monotonic() < patience
            if not self.forever and not waits_for_others:
                self.log.info("nothing to do: %s", work.why_none)
                return TaskSkippedEvent()
            first = dict.fromkeys(work.held, work.looked_at)
            await asyncio.sleep(self.poll_seconds)
            since = {table: question.since.get(table, moment) for table, moment in first.items()}
            question = replace(question, now=utc_now(), since=since)

    def _poll(self, question: Question) -> PipelineWork | None:
        """A poll that retries while the store does not respond."""
        for tried in range(1, _FAILURES_BORNE):
            try:
                return poll_once(self.metadata, self.pipeline, question)
            except RetriableError as error:
                self.log.warning("poll %d of %d failed: %s", tried, _FAILURES_BORNE, error)
                time.sleep(tried)
        return poll_once(self.metadata, self.pipeline, question)
