"""What a lost file, a stopped log and an unapplied change look like, with a real PostgreSQL and whole commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.verification import WINDOW_DIFFERENCES, read_differences
from tests.harness.asked import with_asked
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.one_task.commands import GDDL, gddl
from tests.one_task.postgres import emptied, execute, postgres
from tests.one_task.test_verify_source import verified

pytestmark = pytest.mark.wide

SPEC = TableSpec(
    table="s.t", keys=("id",), sequence_by=("seq",), freshness="30m", options={"verify_connection": "GDDL_SOURCE_SHOP"}
)
BY_HOUR = JobOptions(action=Verify(since_seconds=24 * 3600.0))
UTC_TIMES = pa.timestamp("us", tz="UTC")
Verify = Callable[[JobOptions], JobResult]


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


@pytest.fixture
def source(server: sa.Engine) -> sa.Engine:
    return emptied(server)


@dataclass
class Day:
    """A day of change files: each inserts two rows and updates one of any hour before.

    Attributes:
        rows: of the source now.
    """

    lake: Lake
    files: int
    start: datetime
    rows: dict[int, tuple[str, datetime]] = field(default_factory=dict)

    def time_of(self, number: int) -> datetime:
        return self.start + number * timedelta(hours=20) / self.files

    def file(self, number: int, at: datetime | None = None) -> str:
        """The name of a file, whose changes the source has from now on."""
        at = at or self.time_of(number)
        changes = [("I", 2 * number), ("I", 2 * number + 1), *([("U", number // 2)] if number else [])]
        self.rows |= {key: (f"{op} by {number}", at) for op, key in changes}
        columns: dict[str, Any] = {
            "Op": [op for op, _ in changes],
            "seq": [10 * number + i for i in range(len(changes))],
            "id": pa.array([key for _, key in changes], pa.int32()),
            "v": [f"{op} by {number}" for op, _ in changes],
            "updated_at": pa.array([at] * len(changes), UTC_TIMES),
            "dms_timestamp": pa.array([at] * len(changes), UTC_TIMES),
        }
        name = f"{at:%Y%m%d-%H%M%S}{number % 1000:03d}.parquet"
        write(Path(self.lake.layout(SPEC).landing), name, pa.table(columns))
        return name

    def insert_into(self, source: sa.Engine) -> None:
        execute(
            source, "DROP TABLE IF EXISTS s.t", "CREATE TABLE s.t (id int PRIMARY KEY, v text, updated_at timestamptz)"
        )
        with source.begin() as connection:
            rows = [{"id": key, "v": v, "at": at} for key, (v, at) in self.rows.items()]
            connection.execute(sa.text("INSERT INTO s.t VALUES (:id, :v, :at)"), rows)


def day_of(lake: Lake, source: sa.Engine, files: int) -> tuple[Day, datetime, bytes, Path]:
    """A loaded day that lost one file before it was seen: with the time of that file, its content and its place."""
    day = Day(lake, files, datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=22))
    names = [day.file(number) for number in range(files)]
    lost = Path(lake.layout(SPEC).landing) / names[files * 3 // 5]
    content = lost.read_bytes()
    lost.unlink()
    day.insert_into(source)
    return day, day.time_of(files * 3 // 5), content, lost


def name_the_hour(lake: Lake, source: sa.Engine, files: int, verify: Verify, load: Callable[[], JobResult]) -> None:
    """One file of many never came: two verifications name its hour and no other; and nothing once it has come."""
    day, at, content, lost = day_of(lake, source, files)
    assert load().error is None
    first = verify(BY_HOUR)
    assert (first.error, [w.code for w in first.warnings]) == (None, [])
    assert states(first) == {f"{at:%Y-%m-%dT%H}": "unsettled"}
    day.file(files, datetime.now(UTC) + timedelta(seconds=1))  # the lake passes the time of that comparison
    day.insert_into(source)
    load()
    second = verify(BY_HOUR)
    assert second.error is not None
    assert second.error.code == "WINDOW_DIFFERENT"
    assert states(second) == {f"{at:%Y-%m-%dT%H}": "missing"}
    assert f"{at:%Y-%m-%dT%H}" in second.error.message
    found = second.details["windows"]
    assert found["missing_from"] == second.freshness.complete_until == f"{at:%Y-%m-%dT%H}:00:00+00:00"
    assert sum(window["source_rows"] for window in found["windows"]) == 2 * (files + 1)
    assert all(window["files"] for window in found["windows"][2:21])
    lost.write_bytes(content)
    load()
    third = verify(BY_HOUR)
    assert (third.error, states(third)) == (None, {})
    assert third.freshness.complete_until is not None
    assert third.freshness.complete_until > found["missing_from"]


def states(result: JobResult) -> dict[str, str]:
    """Windows that are neither `ok` nor `open`, by their hours."""
    windows = result.details["windows"]["windows"]
    return {window["start"][:13]: window["state"] for window in windows if window["state"] not in ("ok", "open")}


@pytest.mark.parametrize("files", [200, pytest.param(1000, marks=pytest.mark.deep)])
def test_one_lost_file_of_many_is_named_by_its_hour(source: sa.Engine, tmp_path: Path, files: int) -> None:
    lake = Lake(tmp_path)
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    full = JobOptions(full_listing=True)  # the file that comes back is old
    name_the_hour(
        lake, source, files, lambda options: verified(lake, environ, SPEC, options), lambda: lake.done(SPEC, full)
    )


def test_a_shorter_look_forgets_nothing_of_a_longer_one(source: sa.Engine, tmp_path: Path) -> None:
    """Each hour two hours, each day a day: what the day's saw first has settled when it looks again."""
    lake = Lake(tmp_path)
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    day, at, content, lost = day_of(lake, source, 40)
    lake.done(SPEC)
    short = with_asked(BY_HOUR, since_seconds=2 * 3600.0)
    assert states(verified(lake, environ, SPEC, BY_HOUR)) == {f"{at:%Y-%m-%dT%H}": "unsettled"}
    assert states(verified(lake, environ, SPEC, short)) == {}
    day.file(40, datetime.now(UTC))
    day.insert_into(source)
    lake.done(SPEC)
    assert states(verified(lake, environ, SPEC, short)) == {}
    assert states(verified(lake, environ, SPEC, BY_HOUR)) == {f"{at:%Y-%m-%dT%H}": "missing"}
    lost.write_bytes(content)
    lake.done(SPEC, JobOptions(full_listing=True))
    assert states(verified(lake, environ, SPEC, BY_HOUR)) == {}
    assert read_differences(Storage(), lake.layout(SPEC).state, WINDOW_DIFFERENCES) == {}


def test_a_source_that_goes_on_is_never_wrong(source: sa.Engine, tmp_path: Path) -> None:
    """Twenty verifications while rows come, change and go, the replica always a step behind."""
    lake = Lake(tmp_path)
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    day = Day(lake, 20, datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=22))
    for number in range(20):
        day.file(number)
    day.insert_into(source)
    lake.done(SPEC)
    unsettled = 0
    for number in range(20, 40):
        at, gone = datetime.now(UTC), sorted(day.rows)[number * 7 % len(day.rows)]
        name = day.file(number, at)
        day.rows.pop(gone)
        day.insert_into(source)
        landed = Path(lake.layout(SPEC).landing) / name
        content = landed.read_bytes()
        landed.unlink()
        result = verified(lake, environ, SPEC, BY_HOUR)
        assert (result.error, result.details["windows"]["missing_from"]) == (None, None)
        unsettled += sum(window["unsettled"] for window in result.details["windows"]["windows"])
        landed.write_bytes(content)
        delete = {"Op": ["D"], "seq": [10 * number + 9], "id": pa.array([gone], pa.int32()),
                  "dms_timestamp": pa.array([at], UTC_TIMES)}  # fmt: skip
        write(landed.parent, f"{at:%Y%m%d-%H%M%S}{900 + number:03d}.parquet", pa.table(delete))
        lake.done(SPEC)
    assert unsettled > 20
    assert states(verified(lake, environ, SPEC, BY_HOUR)) == {}


def test_deletes_that_never_came_are_told_apart(source: sa.Engine, tmp_path: Path) -> None:
    """A source without the row has no time of its delete: it was after that of the row."""
    lake = Lake(tmp_path)
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    day = Day(lake, 40, datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=22))
    for number in range(40):
        day.file(number)
    day.insert_into(source)
    lake.done(SPEC)
    execute(source, "DELETE FROM s.t WHERE id = 61")
    result = verified(lake, environ, SPEC, with_asked(BY_HOUR, settle_seconds=0))
    assert states(result) == {f"{day.time_of(30):%Y-%m-%dT%H}": "extra"}
    assert [(key["key"], key["state"]) for key in result.details["windows"]["keys"]] == [('{"id": "61"}', "extra")]


def test_a_window_that_is_not_over_is_open(source: sa.Engine, tmp_path: Path) -> None:
    """A change on its way is no difference; and by day."""
    lake = Lake(tmp_path)
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    day = Day(lake, 20, datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=22))
    for number in range(20):
        day.file(number)
    lake.done(SPEC)
    day.rows[500] = ("on its way", datetime.now(UTC))
    day.insert_into(source)
    result = verified(lake, environ, SPEC, BY_HOUR)
    newest = result.details["windows"]["windows"][-1]
    assert (result.error, newest["state"], newest["unsettled"], newest["source_rows"]) == (None, "open", 1, 1)
    days = verified(lake, environ, SPEC, with_asked(BY_HOUR, window="day")).details["windows"]["windows"]
    assert [window["state"] for window in days][-1] == "open"
    assert sum(window["rows"] for window in days) == 40


@pytest.mark.parametrize(("columns", "why"), [("id int PRIMARY KEY, v text", "tells when"), (None, "no connection")])
def test_without_a_time_of_rows_only_files_are_counted(
    source: sa.Engine, tmp_path: Path, columns: str | None, why: str
) -> None:
    lake = Lake(tmp_path)
    day = Day(lake, 20, datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=22))
    for number in range(20):
        day.file(number)
    lake.done(SPEC)
    execute(source, f"CREATE TABLE s.t ({columns or 'id int'})")
    environ = {"GDDL_SOURCE_SHOP": source.url.render_as_string(hide_password=False)}
    spec = SPEC if columns else replace(SPEC, options={})
    result = verified(lake, environ, spec, BY_HOUR)
    assert (result.error, result.details["verdict"]) == (None, "not compared")
    assert [w.code for w in result.warnings] == ["WINDOWS_NOT_COMPARED"]
    assert why in result.warnings[0].message
    assert sum(window["files"] for window in result.details["windows"]["windows"]) == 20
    assert result.freshness.complete_until is None


def test_commands_name_the_windows_and_remember_them(
    source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By table and as JSON; the state needs attention until a verification of the same time finds nothing."""
    lake = Lake(tmp_path)
    _, at, content, lost = day_of(lake, source, 40)
    monkeypatch.setenv("GDDL_SOURCE_SHOP", source.url.render_as_string(hide_password=False))
    (tmp_path / "metadata" / "tables").mkdir(parents=True)
    (tmp_path / "metadata" / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    row = "{table: s.t, keys: [id], sequence_by: [seq], options: {verify_connection: GDDL_SOURCE_SHOP}}"
    (tmp_path / "metadata" / "tables" / "s.yaml").write_text(f"tables: [{row}]\n")
    gddl(tmp_path, "run")
    asked = ("verify", "--table", "s.t", "--since", "24h", "--by", "hour", "--settle", "0")
    ((result,), _) = gddl(tmp_path, *asked, status=1)
    assert result["error"]["code"] == "WINDOW_DIFFERENT"
    (line,) = statuses(tmp_path).values()
    assert (line["state"], line["attention"]) == ("attention", ["WINDOW_DIFFERENT"])
    assert line["complete_until"] == f"{at:%Y-%m-%dT%H}:00:00+00:00"
    hour = f"{at:%Y-%m-%dT%H}:00"
    (window,) = (one for one in result["details"]["windows"]["windows"] if one["start"].startswith(hour))
    (shown,) = (words for words in plain(tmp_path, *asked) if words[1] == hour)
    numbers = (window[name] for name in ("source_rows", "rows", "missing", "different", "extra", "unsettled", "files"))
    assert shown == ["s.t", hour, "missing", *map(str, numbers)]
    assert window["missing"] == 2
    lost.write_bytes(content)
    gddl(tmp_path, "run")
    gddl(tmp_path, *asked)
    (line,) = statuses(tmp_path).values()
    assert line["attention"] == ["BATCH_LATE"]  # of the file itself
    assert line["complete_until"] > f"{at:%Y-%m-%dT%H}:00:00+00:00"


def plain(folder: Path, *arguments: str) -> list[list[str]]:
    """The lines of a command for the screen, word by word."""
    command = [*GDDL, *arguments, "--metadata", str(folder / "metadata")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})
    return [words for line in done.stdout.splitlines() if len(words := line.split()) > 4]


METADATA = """
landing: ../landing
lake: ../lake
sources:
  crm: {heartbeat: ops.heartbeat, defaults: {freshness: 1h}}
"""
TABLES = """
tables:
  - {table: public.orders, keys: [id], sequence_by: [seq], source: crm}
  - {table: ops.heartbeat, keys: [id], sequence_by: [seq], source: crm}
  - {table: public.other, keys: [id], sequence_by: [seq], source: erp, freshness: 1h}
"""


def metadata(folder: Path) -> None:
    (folder / "metadata" / "tables").mkdir(parents=True)
    (folder / "metadata" / "gddl.yaml").write_text(METADATA)
    (folder / "metadata" / "tables" / "all.yaml").write_text(TABLES)


def change(folder: Path, table: str, number: int, ago: timedelta) -> None:
    at = datetime.now(UTC) - ago
    columns: dict[str, Any] = {
        "Op": ["U"], "seq": [number], "id": pa.array([1], pa.int32()), "v": [f"change {number}"],
        "dms_timestamp": pa.array([at], UTC_TIMES),
    }  # fmt: skip
    write(folder / "landing" / Path(*table.split(".")), f"{at:%Y%m%d-%H%M%S}{number:03d}.parquet", pa.table(columns))


def statuses(folder: Path) -> dict[str, dict[str, Any]]:
    return {line["table"]: line for line in gddl(folder, "status")[0]}


def test_a_stopped_heartbeat_makes_the_tables_of_its_source_late(tmp_path: Path) -> None:
    metadata(tmp_path)
    for table in ("public.orders", "public.other", "ops.heartbeat"):
        row = pa.table({"id": pa.array([1], pa.int32()), "v": ["load"]})
        write(tmp_path / "landing" / Path(*table.split(".")), "LOAD00000001.parquet", row)
        change(tmp_path, table, 1, timedelta(hours=7))
    results = {result["table"]: result for result in gddl(tmp_path, "run")[0]}
    assert results["public.orders"]["status"] == "succeeded"
    gddl(tmp_path, "run")  # nothing to do
    found = statuses(tmp_path)
    for table in ("public.orders", "ops.heartbeat"):
        assert (found[table]["state"], found[table]["late"]) == ("late", True)
        assert found[table]["attention"] == ["SOURCE_STOPPED"]
        assert found[table]["heartbeat"] == "ops.heartbeat"
    # The source erp is as quiet, and nothing says that its log stands still.
    assert (found["public.other"]["state"], found["public.other"]["heartbeat"]) == ("fresh", None)
    assert found["public.other"]["complete_until"][:13] == f"{datetime.now(UTC) - timedelta(hours=7):%Y-%m-%dT%H}"

    change(tmp_path, "ops.heartbeat", 2, timedelta(minutes=4))
    gddl(tmp_path, "run")
    found = statuses(tmp_path)
    assert [found[table]["state"] for table in ("public.orders", "ops.heartbeat")] == ["fresh", "fresh"]
    # A quiet table is known to be complete by the heartbeat, but for files that may land later.
    behind = datetime.now(UTC) - datetime.fromisoformat(found["public.orders"]["complete_until"])
    assert timedelta(minutes=4) < behind < timedelta(minutes=20)


def test_a_loaded_table_reports_until_when_it_is_complete(tmp_path: Path) -> None:
    metadata(tmp_path)
    change(tmp_path, "ops.heartbeat", 1, timedelta(minutes=10))
    change(tmp_path, "public.orders", 1, timedelta(hours=3))
    gddl(tmp_path, "run", "--table", "ops.heartbeat")
    (result,), _ = gddl(tmp_path, "run", "--table", "public.orders")
    freshness = result["freshness"]
    assert freshness["commit_ts"] < freshness["complete_until"]
    behind = datetime.now(UTC) - datetime.fromisoformat(freshness["complete_until"])
    assert timedelta(minutes=10) <= behind < timedelta(hours=1)


def test_files_of_all_sources_of_a_table_are_counted(tmp_path: Path) -> None:
    (tmp_path / "metadata" / "tables").mkdir(parents=True)
    sources = "sources: {eu: {landing: ../landing/eu}, us: {landing: ../landing/us}}"
    (tmp_path / "metadata" / "gddl.yaml").write_text(f"landing: ../other\nlake: ../lake\n{sources}\n")
    row = "{table: public.orders, keys: [id], sequence_by: [seq], shards: [eu, us], target: a.orders}"
    (tmp_path / "metadata" / "tables" / "s.yaml").write_text(f"tables: [{row}]\n")
    for number, source in enumerate(("eu", "us", "us"), start=1):
        change(tmp_path, f"{source}.public.orders", number, timedelta(hours=3))
    gddl(tmp_path, "run")
    (result,), _ = gddl(tmp_path, "verify", "--since", "24h")
    assert [w["code"] for w in result["warnings"]] == ["WINDOWS_NOT_COMPARED"]
    assert sum(window["files"] for window in result["details"]["windows"]["windows"]) == 3
