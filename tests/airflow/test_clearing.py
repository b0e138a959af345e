"""Runs that a person clears, and backfills: what they do again, and what they never undo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question, observe
from airflow_gddl.runtime.state.table_runs import TableHint
from tests.airflow.test_loading import ListRunner, attempt, document, recorder, stored

ROOT = Path(__file__).parents[2]
NOW = "2026-01-01T00:00:00.000000+00:00"


def loaded(root: Path, *runs: str) -> PipelineDocument:
    """A pipeline whose tables these runs have loaded, one after the other."""
    made = document(root, *(TableSpec(table=f"s.{name}", keys=("id",), source="s") for name in "ab"))
    for run in runs:
        attempt(made, ListRunner(), run=run, stage="increments")
    return made


def work_of(made: PipelineDocument, run: str, *, again: bool) -> PipelineWork:
    return observe(made, Question(run=run, now=NOW, again=again))


def test_an_older_run_that_is_cleared_does_its_tables_again(tmp_path: Path) -> None:
    made = loaded(tmp_path, "r1", "r2")
    assert sorted(work_of(made, "r1", again=True).increments) == ["s.a", "s.b"]
    assert sorted(work_of(made, "r2", again=True).increments) == ["s.a", "s.b"], "the latest run, which was finished"


def test_a_retry_of_a_new_run_repeats_no_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = loaded(tmp_path, "r1", "r2")
    known = work_of(made, "r3", again=False).increments
    assert work_of(made, "r3", again=True).increments == known
    assert "no table is known to have been loaded by r3" in caplog.text


def test_a_damaged_state_does_not_fail_the_poll_of_a_retry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = loaded(tmp_path, "r1", "r2")
    (tmp_path / "_gddl" / "state" / f"{made.pipeline.dag_id}.json").write_text("{")
    assert work_of(made, "r1", again=True).increments == work_of(made, "r1", again=False).increments
    assert "is damaged" in caplog.text


def test_a_task_of_an_older_run_keeps_newer_hints(tmp_path: Path) -> None:
    made = loaded(tmp_path, "r1")
    state = recorder(made)
    for day, (mark, run) in ((2, ("newer", "r2")), (1, ("older", "r1"))):
        hint = TableHint(mark=mark, looked_at=f"2026-01-0{day}T00:00:00.000000+00:00", run=run)
        state.take(JobResult(table="s.a", status="skipped"), hint=hint)
    state.flush()
    kept = stored(made).hints["s.a"]
    assert (kept.mark, kept.looked_at, kept.run) == ("newer", "2026-01-02T00:00:00.000000+00:00", "r1")


def test_a_backfill_loads_nothing_and_names_the_way_out(tmp_path: Path) -> None:
    """It would overlap the pipeline's own runs, and no file belongs to a run's date. It is not red, either."""
    made = loaded(tmp_path)
    work = work_of(made, "backfill__2026-01-01T00:00:00+00:00", again=False)
    assert not work.is_some
    assert re.search(
        r"action reload, from and to, or run `gddl reload --from-files --table T --since .* --until", work.why_none
    )
