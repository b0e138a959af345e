"""How a batch stands to those before it, as the ledger tells: what the engines may leave out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.file_names import FileKind
from airflow_gddl.stores import Storage
from spark_jobs.batch.append import overlap_of
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, TableState
from spark_jobs.rules.figures import Figures, FileFigures
from spark_jobs.rules.redelivery import Overlap
from tests.harness.landed import entry, landed, planned_file

PLANNED_AT = "2024-01-02T00:00:00.000000+00:00"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Of a table whose newest generation is its second, with a load and changes up to 20."""
    made = Ledger.open(Storage(), str(tmp_path))
    plan = BatchPlan(number=1, mode="initial", planned_at=PLANNED_AT, generation=2, files=())
    state = TableState(batch=1, generation=2, max_sequence="20")
    made.commit(BatchCommit(number=1, plan=plan, files=(entry(landed("LOAD00000001.csv"), generation=2),), state=state))
    return made


def batch(kind: FileKind, generation: int = 2) -> BatchPlan:
    file = planned_file("LOAD00000002.csv" if kind == "load" else "20240101-000000001.csv", generation)
    return BatchPlan(number=2, mode="incremental", planned_at=PLANNED_AT, generation=2, files=(file,))


def figures(lowest: str | None, loads: int = 0) -> Figures:
    file = FileFigures(
        rows=3, quarantined=0, min_sequence=lowest, max_sequence=lowest, min_commit_ts=None, max_commit_ts=None
    )
    return Figures(files={"a": file}, loads=loads)


def test_changes_above_all_that_came_before_are_later(ledger: Ledger) -> None:
    assert overlap_of(figures("21"), batch("change"), ledger) == Overlap(changes=False, loads=False, later=True)


@pytest.mark.parametrize("lowest", ["20", "9"])
def test_a_sequence_that_came_before_may_come_again(ledger: Ledger, lowest: str) -> None:
    assert overlap_of(figures(lowest), batch("change"), ledger) == Overlap(changes=True, loads=False)


def test_changes_of_an_older_generation_lose_to_the_newest_whatever_their_sequence(ledger: Ledger) -> None:
    found = overlap_of(figures("21"), batch("change", generation=1), ledger)
    assert found == Overlap(changes=False, loads=False)
    assert found.disjoint


def test_rows_of_a_load_lose_to_every_change_of_their_generation(ledger: Ledger) -> None:
    assert overlap_of(figures(None, loads=3), batch("load"), ledger) == Overlap(changes=False, loads=True)


def test_replayed_rows_may_be_of_any_generation(ledger: Ledger) -> None:
    replay = replace(batch("change"), source="quarantine", files=())
    assert not overlap_of(figures("21"), replay, ledger).later


def test_before_the_first_change_every_change_is_later(tmp_path: Path) -> None:
    fresh = Ledger.open(Storage(), str(tmp_path))
    assert overlap_of(figures("1"), batch("change"), fresh).later
