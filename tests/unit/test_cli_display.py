"""What `gddl run` writes where no terminal shows bars: never nothing for half a minute."""

from __future__ import annotations

import pytest

from airflow_gddl.cli.job import Lines, display
from airflow_gddl.cli.screen import Screen
from airflow_gddl.contract.codec import from_json_or_none
from airflow_gddl.contract.result import STARTING_SPARK, JobResult
from airflow_gddl.runners.interface import ProgressEvent


def test_a_log_says_that_spark_starts_once(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines(Screen(), 2, clock=lambda: now[0])
    steps = (
        ("s.a", "discover"),
        ("s.a", "starting Spark"),
        ("s.b", "starting Spark"),
        ("s.c", "replica"),
        ("s.a", "plan"),
    )
    for at, (table, step) in enumerate(steps):
        now[0] = float(at)
        lines.on_progress(ProgressEvent(table=table, step=step))
    assert capsys.readouterr().err == "starting Spark\nSpark started in 3.0s\n"


def test_progress_is_logged_every_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines(Screen(), 2, clock=lambda: now[0])
    lines.on_progress(ProgressEvent(table="s.a", step="starting Spark"))
    for now[0] in (29.0, 30.0, 45.0, 60.0):
        lines.tick()
    now[0] = 70.0
    lines.on_result(JobResult(table="s.b", status="skipped"))
    now[0] = 80.0
    lines.tick()
    lines.on_progress(ProgressEvent(table="s.a", step="replica", batch=2, batches=4, rows=90))
    now[0] = 100.0
    lines.tick()
    assert capsys.readouterr().err.splitlines() == [
        "starting Spark",
        "running for 30 s, tables done: 0; s.a: starting Spark",
        "running for 60 s, tables done: 0; s.a: starting Spark",
        "1 of 2  s.b: skipped in 0ms",
        "Spark started in 1m 20s",
        "running for 100 s, tables done: 1; s.a: replica, batch 2 of 4, 90 rows read",
    ]


def test_json_keeps_standard_output_for_results(capsys: pytest.CaptureFixture[str]) -> None:
    with display(Screen(), 1, as_json=True) as shown:
        shown.on_progress(ProgressEvent(table="s.a", step="starting Spark"))
        shown.tick()
    assert capsys.readouterr() == ("", "starting Spark\n")


def test_every_step_that_jobs_report_is_progress() -> None:
    """A step that the listener refused would end up in the job's log."""
    for step in ("plan", "tombstones", "swapping", STARTING_SPARK):
        event = from_json_or_none(ProgressEvent, f'{{"table": "s.a", "step": "{step}", "batches": null}}')
        assert event == ProgressEvent(table="s.a", step=step)
