"""Polls of large landing folders: what is listed, what is found, and when everything is listed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.codec import from_json
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import LandingFolder
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing import polling
from airflow_gddl.runtime.landing.polling import ListedFiles, Watermark, poll, poll_folders, watermark_of
from airflow_gddl.runtime.landing.run_request import RunRequestForm
from airflow_gddl.runtime.landing.tables_with_work import NextPoll, PipelineWork, Question, observe
from airflow_gddl.runtime.state.recording import StateRecorder
from tests.airflow.test_landing import Shelf
from tests.airflow.test_loading import document

WEEK = timedelta(days=7)
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "LISTED_IN_PART", 20)


def names(days: int, *, of: str = "{0:%Y%m%d}-000000000.parquet", until: datetime = NOON) -> list[str]:
    """A change file for each of so many days."""
    return [of.format(until - timedelta(days=n)) for n in reversed(range(days))]


def listed_below(shelf: Shelf, tables: list[str], marks: Mapping[str, Watermark]) -> dict[str, ListedFiles]:
    return poll_folders(shelf, {table: LandingFolder("/l", table) for table in tables}, marks)


def watermark(listed: list[str], lookback: timedelta = WEEK) -> Watermark | None:
    shelf = Shelf([f"/l/s/a/{name}" for name in listed])
    tally = listed_below(shelf, ["s.a"], {})["s.a"]
    return watermark_of(tally.digests, lookback, NOON.isoformat())


def test_a_poll_lists_what_is_behind_the_watermark() -> None:
    listed = names(400)
    mark = watermark([*listed, "LOAD00000001.parquet"])
    assert mark is not None
    assert (mark.after, mark.files) == ("20240524-000000000.parquet", 392)
    shelf = Shelf([f"/l/s/a/{name}" for name in (*listed, "LOAD00000001.parquet", "20240602-000000000.parquet")])
    found = listed_below(shelf, ["s.a"], {"s.a": mark})["s.a"].poll()
    assert shelf.returned == 10
    assert found == poll(shelf, "/l", ["s.a"])["s.a"]
    assert found.files == 402


@pytest.mark.parametrize(
    "listed",
    [
        names(20),
        [f"{n:05d}.parquet" for n in range(99)],
        [f"LOAD{n:08d}.parquet" for n in range(99)],
        names(99, of="{0:%d/%m/%Y}/{0:%Y%m%d}-000000000.parquet"),
        names(99, of="batch/{0:%Y%m%d}-000000000.parquet"),
        ["1/LOAD00000001.parquet", *names(99)],
        ["20249999-000000000.parquet", *names(99)],
    ],
    ids=["few", "no times", "loads", "folders by day first", "a folder", "a folder that sorts first", "no such day"],
)
def test_folders_that_do_not_sort_by_time_are_listed_in_full(listed: list[str]) -> None:
    assert watermark(listed) is None


def test_folders_of_dates_sort_by_time() -> None:
    mark = watermark(names(99, of="{0:%Y/%m/%d}/{0:%Y%m%d}-000000000.parquet"))
    assert mark is not None
    assert mark.after == "2024/05/24/20240524-000000000.parquet"


def test_a_longer_lookback_applies_and_a_shorter_one_does_not() -> None:
    found = [watermark(names(99), timedelta(days=days)) for days in (30, 2)]
    assert [mark.after[:8] for mark in found if mark is not None] == ["20240501", "20240524"]


@given(
    before=st.sets(st.integers(0, 60), min_size=21),
    after=st.sets(st.integers(53, 90)),
    changed=st.sets(st.integers(53, 60)),
)
def test_a_limited_listing_finds_the_same_new_files_as_a_full_one(
    before: set[int], after: set[int], changed: set[int]
) -> None:
    def path(day: int) -> str:
        return f"/l/s/a/{datetime(2024, 1, 1) + timedelta(days=day):%Y%m%d}-000000000.parquet"  # noqa: DTZ001 - a name's

    newest = max(before)
    shelf = Shelf([path(day) for day in before])
    tally = listed_below(shelf, ["s.a"], {})["s.a"]
    mark = watermark_of(tally.digests, WEEK, NOON.isoformat())
    shelf.names += [f"{path(day)}.csv" for day in sorted(after | changed) if day >= newest - 7]
    known = {"s.a": mark} if mark is not None else {}
    assert listed_below(shelf, ["s.a"], known)["s.a"].poll() == poll(shelf, "/l", ["s.a"])["s.a"]


def test_large_and_small_folders_of_a_schema_are_listed_together() -> None:
    mark = watermark(names(400))
    assert mark is not None
    small_ones = [f"/l/s/{name}/20240101-000000000.parquet" for name in ("b", "c")]
    shelf = Shelf([*(f"/l/s/a/{name}" for name in names(400)), *small_ones])
    found = listed_below(shelf, ["s.a", "s.b", "s.c"], {"s.a": mark})
    assert shelf.listed == ["/l/s", "/l/s/a"]
    assert shelf.returned == 8 + 2
    assert {name: tally.poll() for name, tally in found.items()} == poll(shelf, "/l", ["s.a", "s.b", "s.c"])


# In a pipeline


@pytest.fixture
def made(tmp_path: Path) -> PipelineDocument:
    land(tmp_path, *names(99))
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    return replace(document(tmp_path, TableSpec(table="s.a", keys=("id",), source="s")), roots=roots)


def land(root: Path, *listed: str) -> None:
    for name in listed:
        path = root / "landing" / "s" / "a" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def polled(made: PipelineDocument, run: str = "scheduled__1", now: datetime = NOON, **asked: object) -> str:
    """The mark of the table."""
    form = RunRequestForm(**asked)  # type: ignore[arg-type] # fields of the form
    work: PipelineWork = observe(made, Question(run=run, now=now.isoformat(timespec="microseconds"), form=form))
    return {**work.initial, **work.increments}["s.a"]


def test_a_file_later_than_the_lookback_is_found_within_a_day(made: PipelineDocument, tmp_path: Path) -> None:
    first = polled(made)
    assert polled(made, now=NOON + timedelta(hours=1)) == first
    land(tmp_path, "20240301-000000001.parquet")
    assert polled(made, now=NOON + timedelta(hours=23)) == first, "it is behind the watermark"
    assert polled(made, now=NOON + timedelta(hours=25)) != first


@pytest.mark.parametrize("how", ["person", "window", "cleared", "clock set back", "damaged", "damaged part", "removed"])
def test_when_a_full_listing_is_required(made: PipelineDocument, tmp_path: Path, how: str) -> None:
    first = polled(made)
    land(tmp_path, "20240301-000000001.parquet")
    assert polled(made) == first
    (kept,) = (tmp_path / "lake" / "_gddl" / "state").glob("*.json")
    if how == "damaged":
        kept.write_text("{")
    if how == "damaged part":
        kept.write_text(json.dumps({**json.loads(kept.read_text()), "next_poll": "{"}))
    if how == "removed":
        kept.unlink()
    if how == "window":
        assert polled(made, start="2024-01-01") != first
    elif how == "person":
        assert polled(made, run="manual__1") != first
    elif how == "cleared":
        question = Question(run="scheduled__1", now=NOON.isoformat(), again=True)
        assert observe(made, question).initial["s.a"] != first
    else:
        assert polled(made, now=NOON - timedelta(hours=1) if how == "clock set back" else NOON) != first


def test_a_newer_file_is_found_at_once(made: PipelineDocument, tmp_path: Path) -> None:
    first = polled(made)
    land(tmp_path, "20240526-000000001.parquet")  # within the poll-back
    second = polled(made)
    land(tmp_path, "20240602-000000000.parquet")
    assert len({first, second, polled(made)}) == 3


def test_a_lake_that_can_not_be_written_costs_a_full_listing(
    made: PipelineDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RetriableError("LANDING_UNREACHABLE", "no")

    monkeypatch.setattr(StateRecorder, "change", refuse)
    first = polled(made)
    land(tmp_path, "20240301-000000001.parquet")
    assert polled(made) != first


def test_watermarks_are_those_of_full_listings_alone(made: PipelineDocument) -> None:
    def kept() -> NextPoll:
        return from_json(NextPoll, StateRecorder(made.roots, made.pipeline.dag_id, ()).known.next_poll)

    polled(made)
    first = kept()
    assert {table: one.swept for table, one in first.watermarks.items()} == {
        "s.a": NOON.isoformat(timespec="microseconds")
    }
    polled(made, now=NOON + timedelta(hours=2))
    assert kept() == first


def test_files_of_any_source_of_a_table_are_news(tmp_path: Path) -> None:
    """A table that has a row of its own in one of the folders is polled, too."""
    roots = {name: str(tmp_path / name) for name in ("eu", "us")}
    for root in roots:
        (tmp_path / root / "s" / "a").mkdir(parents=True)
    own = TableSpec(table="s.own", keys=("id",), source="s", source_table="s.a", landing=roots["us"])
    sharded = TableSpec(
        table="s.a", keys=("_source", "id"), source="s", shards=tuple(roots), shard_landings=roots, airflow="pack"
    )
    found = document(tmp_path / "lake", sharded, replace(own, airflow="pack"))

    def marks() -> dict[str, str]:
        work = observe(found, Question(run="scheduled__1", now=NOON.isoformat(timespec="microseconds")))
        return {**work.initial, **work.increments}

    assert marks() == {}, "no source has a file"
    (tmp_path / "us" / "s" / "a" / "LOAD00000001.parquet").write_text("x")
    first = marks()
    assert first.keys() == {"s.a", "s.own"}
    (tmp_path / "eu" / "s" / "a" / "LOAD00000001.parquet").write_text("x")
    second = marks()
    assert second["s.a"] != first["s.a"]
    assert second["s.own"] == first["s.own"]
