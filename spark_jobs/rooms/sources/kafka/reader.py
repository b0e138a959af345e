"""A topic as the source of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.rooms.sources import READING, SourceReader
from spark_jobs.rooms.sources.kafka.stream import TopicStream
from spark_jobs.rooms.sources.kafka.topic import capture_topic, has_messages

if TYPE_CHECKING:
    from spark_jobs.rooms.sources import Load


def load(run: TableRun, totals: RunTotals, then: Load) -> JobResult:
    if isinstance(run.job.options.action, READING):
        capture_topic(run, totals)
    return then(run, totals)


READER = SourceReader(has_work=has_messages, load=load, stream=TopicStream)
