"""Landing folders of sinks that partition by time: short listings find what lies in the folders near the newest file,
and all that lies in none; nothing is taken twice or missed for longer than a day, whatever the row says of folders.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.continuous.streams import ListedFiles
from spark_jobs.discovery import NotifiedFile, discover, discover_notified
from spark_jobs.ledger import ledger as ledgers
from spark_jobs.plan.batching import BatchLimits
from spark_jobs.plan.waiting_files import Discovery
from tests.harness.landing_folder import START, counted_stats
from tests.harness.s3_server import Bucket, serving
from tests.harness.sunk_folder import FORMATS, HOURLY, Sunk

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DAILY = "'year'=YYYY/'month'=MM/'day'=dd"
BY_MONTH = "'events/orders/'yyyy/MM"


@pytest.fixture
def table(tmp_path: Path) -> Sunk:
    return Sunk.configured(tmp_path)


@pytest.fixture(params=[text for text in FORMATS if "dd" in text])
def any_table(request: pytest.FixtureRequest, tmp_path: Path) -> Sunk:
    return Sunk.configured(tmp_path, request.param)


def test_idle_listings_do_not_grow_with_old_files(any_table: Sunk, monkeypatch: pytest.MonkeyPatch) -> None:
    any_table.land("beside.json")
    any_table.sink_on(300, HOUR)
    any_table.run()
    stats = counted_stats(monkeypatch)
    listed, looked_at = [], []
    for month in (2, 3, 4):
        any_table.sink_on(336, 2 * HOUR, START.replace(month=month))
        any_table.run()
        stats.clear()
        found = any_table.discover()
        assert (found.waiting, found.missing, found.listed_in_full_at) == ((), (), None)
        listed.append(found.listed)
        looked_at.append(len(stats))
    assert max(listed) <= 8 * 12 + 1
    assert listed[1] == listed[2] == pytest.approx(listed[0], abs=12)
    assert max(looked_at) <= max(listed) + 20


def test_old_rows_are_archived_and_ingested_once(any_table: Sunk) -> None:
    any_table.limits = BatchLimits(max_files=10, max_bytes=10**9)
    names = any_table.sink_on(600, HOUR)
    beside = any_table.land("beside.json")
    assert Counter(any_table.run()) == Counter([*names, beside])
    ledger = any_table.ledger()
    assert ledger.archived_before is not None
    assert len(ledger.entries()) <= (7 + 1) * 24 + 20 * 10 + 1
    assert len(ledger.all_entries()) == 601
    assert any_table.run() == any_table.run(full=True) == []


def test_late_file_within_the_lookback_is_found_at_once(any_table: Sunk) -> None:
    any_table.sink_on(20, DAY)
    any_table.run()
    late = any_table.sunk(START + 12 * DAY + HOUR)
    assert any_table.run() == [late]
    assert any_table.run() == []


def test_file_beyond_the_lookback_is_found_daily(any_table: Sunk) -> None:
    any_table.sink_on(20, DAY)
    any_table.run()
    very_late = any_table.sunk(START + 2 * DAY)
    assert any_table.run() == []
    any_table.now += DAY - timedelta(minutes=1)
    assert any_table.run() == []
    any_table.now += timedelta(minutes=1)
    assert any_table.run() == [very_late]
    assert any_table.run() == []


@pytest.mark.parametrize("text", [DAILY, BY_MONTH])
def test_time_folders_are_listed_in_full(tmp_path: Path, text: str) -> None:
    """The newest folder, and the one before while the look-back reaches into it, however late in them files come."""
    table = Sunk.configured(tmp_path, text, lookback="1h")
    table.limits = BatchLimits(max_files=1, max_bytes=10**9)
    table.sink_on(100, DAY)
    table.run()
    assert table.ledger().archived_before is not None
    newest = START + 99 * DAY
    same = table.sunk(newest, partition=9, offset=1)
    before = table.sunk(newest.replace(day=1) - DAY if text == BY_MONTH else newest - DAY, partition=8)
    assert Counter(table.run()) == Counter([same, before])


def test_files_in_no_folder_of_time_are_always_found(table: Sunk) -> None:
    table.sink_on(400, HOUR)
    table.run()
    names = [
        "a.json",
        "partition=0/x+0+1.json",
        "year=.json",
        "year=1969/x.json",
        "yeti/x.json",
        "z.json",
    ]
    for name in names:
        table.land(name)
        assert table.run() == [name]
    assert table.run() == []
    assert table.discover().listed < 7 * 24 + 30


def test_folder_without_a_start_name_is_listed_in_full(tmp_path: Path) -> None:
    """`19.json` and `2/x.json` sort between folders of years: once known, all is listed, as without a format."""
    table = Sunk.configured(tmp_path, "yyyy/MM/dd/HH")
    table.sink_on(400, HOUR)
    between = table.land("2/orders+2+1.json")
    assert between in table.run()
    late = table.land("2/orders+2+2.json")
    found = table.discover()
    assert (table.names(found.waiting), found.listed) == ([late], 402)


def test_files_of_coarser_folders_count_as_theirs(table: Sunk) -> None:
    """A sink that was told to make hours of days leaves days behind."""
    table.made = DAILY
    table.sink_on(300, HOUR)
    table.made = HOURLY
    table.sink_on(300, HOUR, START + 300 * HOUR)
    table.run()
    assert table.discover().listed < 8 * 24 + 2
    late = table.land(f"{START + 20 * DAY:year=%Y/month=%m/day=%d}/late.json")
    assert table.run() == [late]


def test_partial_run_leaves_newer_files(table: Sunk) -> None:
    """Offsets of partitions say nothing of each other: the newest file may have the least."""
    table.sink = replace(table.sink, lookback="1h")
    table.sunk(START)
    table.run()
    table.now = START + 20 * HOUR
    names = [table.sunk(START + number * HOUR, offset=1000 - number) for number in range(1, 20)]
    table.limits = BatchLimits(max_files=1, max_bytes=10**9)
    done: list[str] = []
    while taken := table.run(batches=1):
        done += taken
    assert done == names


def test_folder_from_the_far_future_hides_no_files(table: Sunk) -> None:
    table.sink_on(20, DAY)
    table.sunk(START.replace(year=2099))
    table.run()
    late = table.sunk(START + 18 * DAY)
    assert table.run() == [late]


def test_new_folder_rule_starts_with_the_next_file(table: Sunk) -> None:
    reported, table.sink = table.sink, DebeziumOptions()
    table.sink_on(400, HOUR)
    table.run()
    table.sink = reported
    assert (table.discover().listed, table.discover().waiting) == (400, ())
    name = table.sunk(table.now)
    assert table.run() == [name]
    assert table.discover().listed < 7 * 24 + 2


@pytest.mark.parametrize("then", [None, DAILY, "'year'=YYYY", "yyyy/MM"])
def test_archives_of_another_rule_are_rewritten(table: Sunk, then: str | None) -> None:
    table.limits = BatchLimits(max_files=10, max_bytes=10**9)
    table.sink_on(600, HOUR)
    table.run()
    assert table.ledger().archived_before is not None
    assert table.discover().listed < 600
    table.sink = replace(table.sink, path_format=then, lookback="30d")
    late = table.sunk(START + HOUR)
    assert table.run() == [late]
    assert table.discover().missing == ()
    for number in range(25):
        name = table.sunk(START + (600 + number) * HOUR)
        assert table.run() == [name]
    assert table.run(full=True) == []
    if then in (None, "yyyy/MM"):
        assert (table.ledger().archived_before, len(table.ledger().entries())) == (None, 626)
    else:
        assert table.discover().listed < 627 or then == "'year'=YYYY"
    assert set(table.known()) == {path.path.removeprefix(f"{table.landing}/") for path in Storage().list(table.landing)}


def test_notified_files_are_found_in_archives(table: Sunk) -> None:
    table.limits = BatchLimits(max_files=10, max_bytes=10**9)
    names = table.sink_on(600, HOUR)
    table.run()
    late = table.sunk(START)
    files = [NotifiedFile(path=f"file:{table.landing}/{name}", size=1, modified=0) for name in (names[0], late)]
    for sink in (table.sink, replace(table.sink, path_format=DAILY), DebeziumOptions()):
        table.sink = sink
        found = discover_notified(table.place, table.ledger(), table.now, files)
        assert table.names(found.waiting) == [late]


def test_on_s3_an_idle_run_is_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket()
    with serving(bucket) as url:
        reported = {"ENDPOINT": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1", "ACCESS_KEY_ID": "k"}
        for name, value in {**reported, "SECRET_ACCESS_KEY": "s"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        table = Sunk("s3://bucket/landing/public/orders", "s3://bucket/lake/_gddl/ledger/public/orders")
        table.limits = BatchLimits(max_files=500, max_bytes=10**9)
        for number in range(2_400):
            time = START + number * HOUR
            key = f"landing/public/orders/{table.folder(time)}/orders+0+{number:010d}.json"
            bucket.objects[key] = b"x"
        table.now = START + 100 * DAY
        assert len(table.run()) == 2_400
        bucket.requests.clear()
        found = table.discover()
        requests = list(bucket.requests)
        bucket.requests.clear()
        table.sink = DebeziumOptions()
        assert table.discover().listed == 2_400
    assert (found.waiting, found.listed) == ((), 7 * 24 + 1)
    # Ledger: listing, commit, rows. Landing: what lies before folders of time, and what lies from a week ago on.
    assert requests == ["GET "] + [r for r in requests if "_gddl" in r] + ["GET "] * 2
    assert len(requests) == 5
    assert bucket.requests.count("GET ") == 1 + 3


SPEC = TableSpec(table="s.a", keys=("id",), trigger="2s", dialect="debezium", options={"path_format": HOURLY})


@dataclass
class Glances:
    """A continuous job polls one table's folder."""

    root: Path
    wall: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    now: float = 0.0
    listed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        roots = Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))
        self.landing = Path(Layout.of(roots, SPEC).landing)
        self.files = ListedFiles(roots, Storage(), lambda: self.wall, lambda: self.now)
        self.files.follow([SPEC])

    def land(self, name: str) -> None:
        (self.landing / name).parent.mkdir(parents=True, exist_ok=True)
        (self.landing / name).write_text("x")

    def poll(self) -> tuple[bool, int]:
        """Whether there is news, and how many files the look has seen."""
        self.now += 2
        self.wall += timedelta(seconds=2)
        is_new = list(self.files.news()) == ["s.a"]
        return is_new, len(self.files._folders["s.a"].seen)


@pytest.fixture
def glances(tmp_path: Path) -> Iterator[Glances]:
    made = Glances(tmp_path)
    yield made
    made.files.close()


def test_glances_cover_new_folders_and_files_outside_folders(glances: Glances) -> None:
    for hour in range(12):
        glances.land(f"year=2026/month=01/day=01/hour={hour:02d}/a+0+{hour}.json")
    assert glances.poll() == (True, 12)
    assert glances.poll() == (False, 2)
    for name in ("hour=12/a+0+12.json", "hour=11/late.json", "hour=12/a+1+0.json"):
        glances.land(f"year=2026/month=01/day=01/{name}")
        assert glances.poll()[0], name
    for name in ("beside.json", "zz/beside.json"):
        glances.land(name)
        assert glances.poll()[0], name
    glances.land("year=2999/month=01/day=01/hour=00/x.json")
    assert glances.poll()[0]
    glances.land("year=2026/month=01/day=01/hour=12/b.json")
    assert glances.poll()[0]
    assert not glances.poll()[0]


def test_glances_are_full_with_files_between_time_folders(glances: Glances) -> None:
    for name in ("year=2026/month=01/day=01/hour=12/a.json", "year=2025/month=02/day=30/a.json"):
        glances.land(name)
    for _ in range(3):
        glances.poll()
    glances.land("year=2025/month=02/day=30/b.json")
    assert glances.poll() == (True, 3)


@dataclass
class Job:
    """Runs of a table."""

    table: Sunk
    taken: Counter[str] = field(default_factory=Counter)

    def poll(self, *, full: bool = False) -> Discovery:
        return discover(self.table.place, self.table.ledger(), self.table.now, full=full)

    def take(self, found: Discovery, most: int = 1000) -> None:
        ledger, dialect = self.table.ledger(), self.table.dialect
        ledger.keep(timedelta(days=1), self.table.landing, dialect.times)
        self.taken.update(self.table.take(ledger, found, most))


Step = tuple[Any, ...]
SAID = (HOURLY, HOURLY, DAILY, "yyyy/MM/dd/HH", "'dt'=YYYY-MM-dd", "'year'=YYYY", None)
BESIDE = (
    "partition=0/{}.json",
    "z/{}.json",
    "{}.json",
    "partition=0/{}.json",
    "z/{}.json",
    "2/{}.json",
    "year=x/{}.json",
)
AS_SAID = (None, None, None, None, None, None, None, None, HOURLY, DAILY, "yyyy/MM/dd/HH", BY_MONTH)
"""Mostly the sink does what the row says."""
FILES = st.tuples(st.just("file"), st.sampled_from(AS_SAID), st.integers(-40, 3), st.integers(0, 3))
RUNS = st.tuples(st.just("run"), st.sampled_from([1, 1000, 1000]))
STEPS = st.lists(
    st.one_of(
        *(FILES, FILES, FILES, RUNS, RUNS),
        st.tuples(st.just("further up"), st.integers(-40, 3)),
        st.tuples(st.just("beside"), st.sampled_from(BESIDE)),
        st.tuples(st.just("passes"), st.sampled_from([1, 61, 20 * 60, 60 * 60, 9 * 3600])),
        st.tuples(st.just("said"), st.sampled_from(SAID)),
    ),
    min_size=5,
    max_size=40,
)


@given(said=st.sampled_from(SAID), steps=STEPS)
def test_each_file_is_ingested_once_in_any_order(said: str | None, steps: list[Step]) -> None:
    """After each run all that lies within the look-back, a day later everything, and never one twice."""
    usual, ledgers.COMMITS_PER_SNAPSHOT = ledgers.COMMITS_PER_SNAPSHOT, 2
    try:
        with tempfile.TemporaryDirectory() as folder:
            _play(Sunk.configured(Path(folder), lookback="1d"), said, steps)
    finally:
        ledgers.COMMITS_PER_SNAPSHOT = usual


def _play(table: Sunk, said: str | None, steps: list[Step]) -> None:
    table.now, table.limits = START + 12 * HOUR, BatchLimits(max_files=2, max_bytes=10**9)
    table.sink, table.made = replace(table.sink, path_format=said), said or HOURLY
    job, landed = Job(table), Landed()
    for half_days in range(-10, 1):
        time = table.now + half_days * 12 * HOUR
        landed.names[table.sunk(time)] = (table.made, time)
    job.take(job.poll())
    for kind, *step in steps:
        if kind == "file":
            made, hours, offset = step
            table.made = made or table.sink.path_format or HOURLY
            time = table.now + hours * HOUR
            name = table.sunk(time, partition=len(landed.names), offset=offset)
            landed.names[name] = (table.made, time)
        elif kind == "further up":
            time = table.now + step[0] * HOUR
            name = table.land(f"{time:year=%Y/month=%m/day=%d}/a{len(landed.names)}.json")
            landed.names[name] = ("further up", time)
        elif kind == "beside":
            landed.names[table.land(step[0].format(len(landed.names)))] = None
        elif kind == "passes":
            table.now += timedelta(seconds=step[0])
        elif kind == "said":
            table.sink = replace(table.sink, path_format=step[0])
        else:
            job.take(job.poll(), step[0])
            assert step[0] < 1000 or landed.due(table.sink.path_format) <= set(job.taken)
        assert max(job.taken.values(), default=1) == 1
    job.take(job.poll())
    assert landed.due(table.sink.path_format) <= set(job.taken)
    table.now += DAY
    job.take(job.poll())
    assert job.taken == Counter(landed.names.keys())
    assert job.poll().missing == job.poll(full=True).missing == ()
    assert job.poll(full=True).waiting == ()


@dataclass
class Landed:
    """The small oracle: files, with the format and the time of their folders where they lie in such."""

    names: dict[str, tuple[str, datetime] | None] = field(default_factory=dict)

    def due(self, said: str | None) -> set[str]:
        """What no run may leave: what lies a day or less behind the newest, in folders as the row says, or beside."""
        if said is None:
            return set(self.names)
        beside = {name for name in self.names if name.startswith(("partition=0/", "z/"))}
        timed = {name: found for name, found in self.names.items() if found is not None}
        since = _floor(said, max((time for _, time in timed.values()), default=START) - DAY)
        due = {name for name, (made, time) in timed.items() if made == said and _floor(said, time) >= since}
        above = {name for name, (made, time) in timed.items() if made == "further up" and _floor(DAILY, time) >= since}
        return beside | due | (above if said in (HOURLY, DAILY) else set())


def _floor(text: str, time: datetime) -> datetime:
    return datetime.strptime(time.strftime(FORMATS[text]), FORMATS[text]).replace(tzinfo=UTC)
