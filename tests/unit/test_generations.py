"""Generations of files where no ledger tells them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.spec import Generations
from spark_jobs.plan.generations import Recorded, RecordedFile, generation_at, infer, of_times, reconstruct
from spark_jobs.plan.planned_batch import LandedFile
from tests.harness.landed import landed

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(hours: float) -> str:
    return (START + timedelta(hours=hours)).isoformat(timespec="microseconds")


def load(number: int, hours: float) -> LandedFile:
    return landed(f"LOAD{number:08d}.parquet", modified=at(hours))


def change(number: int, hours: float) -> LandedFile:
    return landed(f"20240101-{number:09d}.parquet", modified=at(hours))


MINUTE = 1 / 60
CASES = {
    "a load alone": ([load(1, 0), load(2, 90)], "certain", ()),
    "changes alone": ([change(1, 0), change(2, 90)], "certain", ()),
    "changes after the load": ([load(1, 0), load(2, 5), change(1, 5), change(2, 90)], "certain", ()),
    "within a minute": ([change(1, 0), load(1, MINUTE), change(2, 90)], "inferred", ()),
    "minutes before": ([change(1, 0), load(1, 2 * MINUTE)], "unknown", ()),
    "hours before": ([change(1, 0), load(1, 23)], "unknown", ()),
    "a day before": ([change(1, 0), load(1, 24), load(2, 25), change(2, 30)], "inferred", (at(24),)),
    "one of several hours before": ([change(1, 0), change(2, 23), load(1, 24)], "unknown", ()),
    "between load files": ([load(1, 0), change(1, 48), load(2, 96)], "unknown", ()),
    "during a long load": ([load(1, 0), change(1, 1), load(2, 2)], "unknown", ()),
}


@pytest.mark.parametrize("name", CASES)
def test_times_decide_or_are_reported_as_ambiguous(name: str) -> None:
    files, certainty, openings = CASES[name]
    found = infer(files)
    assert (found.certainty, found.openings) == (certainty, openings)
    assert (found.older > 0) == (certainty != "certain")
    assert infer(files, "one") == infer([])
    assert infer(files, "by_time").certainty == "certain"


def test_by_time_each_load_after_changes_opens_a_generation() -> None:
    files = [load(1, 0), change(1, 1), load(2, 2), load(3, 3), change(2, 4), load(4, 5)]
    openings = infer(files, "by_time").openings
    assert openings == (at(2), at(5))
    assert [generation_at(file.modified, openings) for file in files] == [1, 1, 2, 2, 2, 3]
    assert [*of_times(files, 1).values()] == [1, 1, 2, 2, 2, 3]
    assert [*of_times(files, 5).values()] == [3, 3, 4, 4, 4, 5], "the ledger counts no load twice"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=8), st.sampled_from(["auto", "one", "by_time"]))
def test_order_of_a_listing_is_irrelevant(drawn: list[tuple[bool, int]], said: Generations) -> None:
    files = [(load if loads else change)(n, hours) for n, (loads, hours) in enumerate(drawn)]
    one, other = infer(files, said), infer(files[::-1], said)
    assert (one.certainty, one.openings, one.older) == (other.certainty, other.openings, other.older)


def recorded(file: LandedFile, generation: int, hours: float) -> RecordedFile:
    return RecordedFile(path=file.path, generation=generation, applied_at=at(hours))


def test_change_table_states_generations() -> None:
    old, again = load(1, 0), load(1, 50)
    first, second = change(1, 10), change(2, 60)
    known = Recorded([recorded(old, 1, 1), recorded(first, 1, 11), recorded(again, 2, 51), recorded(second, 2, 61)])
    assert list(reconstruct([again, first, second], known).values()) == [2, 1, 2]
    assert known.generation == 2


def test_load_rewritten_after_ingestion_opens_a_generation() -> None:
    again, other = load(1, 50), load(2, 0)
    before, after = change(1, 10), change(2, 60)
    known = Recorded([recorded(again, 1, 1), recorded(other, 1, 1)])
    assert list(reconstruct([again, other, before, after], known).values()) == [2, 1, 1, 2]


def test_rewritten_load_file_of_an_older_generation_joins_the_newest() -> None:
    first, second = load(1, 50), load(2, 52)
    known = Recorded([recorded(first, 2, 51), recorded(second, 1, 1)])
    assert list(reconstruct([first, second], known).values()) == [2, 2]


def test_changes_without_rows_use_modification_times() -> None:
    again = load(1, 50)
    known = Recorded([recorded(load(1, 0), 1, 1), recorded(again, 2, 51)])
    assert list(reconstruct([again, change(1, 49), change(2, 50)], known).values()) == [2, 1, 2]


def test_without_load_files_the_first_batch_dates_the_generation() -> None:
    known = Recorded([recorded(load(1, 0), 1, 1), recorded(load(1, 50), 2, 51)])
    assert list(reconstruct([change(1, 49), change(2, 52)], known).values()) == [1, 2]


def test_empty_change_table_states_nothing() -> None:
    assert set(reconstruct([load(1, 0), change(1, 1)], Recorded([])).values()) == {1}


def test_first_of_several_rewritten_load_files_dates_the_generation() -> None:
    again, later = load(1, 50), load(2, 60)
    known = Recorded([recorded(again, 1, 1), recorded(later, 1, 1)])
    assert list(reconstruct([again, later, change(1, 49), change(2, 55)], known).values()) == [2, 2, 1, 2]
