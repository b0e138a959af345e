"""Workers without a supervisor: `python -m tests.airflow.workers load|monitor METADATA PIPELINE`."""

from __future__ import annotations

import logging
import os
import sys

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.spec import Continuous, DesiredState, JobOptions, JobSpec
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline, monitor_of
from airflow_gddl.reporting.results import Reporter
from airflow_gddl.runners.descriptor import RunnerSettings, make_runner
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.landing.tables_with_work import Question, observe
from airflow_gddl.runtime.state.recording import StateRecorder


def command(kind: str, metadata: object, pipeline: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "tests.airflow.workers", kind, str(metadata), pipeline]


def load(document: PipelineDocument) -> None:
    """An initial load; prints whether it was stopped, and its failed tables."""
    work = observe(document, Question(run="r1", now="2024-01-01T00:00:00.000000+00:00"))
    state = StateRecorder(document.roots, document.pipeline.dag_id, document.pipeline.tables)
    loading = Loading(
        document=document,
        work=work,
        stage="initial",
        state=state,
        listener=Reporter(logging.getLogger(), {}),
        run="r1",
        job_id="j",
    )
    runner = make_runner("local", RunnerSettings(command=configuration.job_command(), environ=os.environ))
    loading.load(runner, loading.todo(), loading.marks)
    print("stopped" if loading.stopped else "ended", sorted(result.table for result in loading.failed))


def monitor(document: PipelineDocument, metadata: str) -> None:
    """A continuous job; prints its exit status, the signal that ended it, its tables, and how many of them failed."""
    monitored = MonitoredPipeline(
        metadata=metadata, pipeline=document.pipeline.dag_id, run="r1", task="continuous_load"
    )
    log = logging.getLogger()
    monitor = monitor_of(monitored, document, os.environ, Reporter(log, {}), Context(), log)
    monitor.standing.put(DesiredState(tables=document.specs, tiers=document.tiers))
    settings = RunnerSettings(command=configuration.job_command(), environ=os.environ, tick=monitor.tick)
    options = JobOptions(continuous=Continuous(folder=monitor.standing.folder))
    job = JobSpec(run_id="j", roots=document.roots, tables=document.specs, tiers=document.tiers, options=options)
    outcome = make_runner("local", settings).run(job, monitor)
    monitor.state.flush()
    print(outcome.exit_status, outcome.cancelled_by, sorted(monitor.last), len(monitor.failing))


if __name__ == "__main__":
    kind, metadata, pipeline = sys.argv[1:]
    document = configuration.compiled_metadata(metadata).pipeline(pipeline)
    assert document is not None
    if kind == "load":
        load(document)
    else:
        monitor(document, metadata)
