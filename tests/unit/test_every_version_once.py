"""Discovery, batching and ledger together: whatever arrives and wherever a run crashes, each version counts once."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.file_names import change_time, digits_of, moment
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.ledger import ledger as ledgers
from spark_jobs.plan.batching import BatchLimits
from spark_jobs.plan.planned_batch import FileEntry
from tests.harness.landing_folder import START, Table

LAYOUTS = [
    DmsOptions(),
    DmsOptions(date_partition="YYYYMMDD", lookback="1d"),
    DmsOptions(date_partition="DDMMYYYY", date_delimiter="dash", lookback="2d"),
]


class CrashError(Exception):
    """The process died."""


@dataclass
class Mortal(Storage):
    """Dies at the write after the next `lives`, before it or after it; None: never."""

    lives: int | None = None
    before: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def _spend(self, *, done: bool) -> None:
        if self.lives is None or done == self.before:
            return
        self.lives -= 1
        if self.lives < 0:
            raise CrashError

    def write(self, path: str, data: bytes) -> None:
        self._spend(done=False)
        super().write(path, data)
        self._spend(done=True)

    def create(self, path: str, data: bytes) -> bool:
        self._spend(done=False)
        made = super().create(path, data)
        self._spend(done=True)
        return made

    def delete(self, path: str) -> None:
        self._spend(done=False)
        super().delete(path)
        self._spend(done=True)


class Ingestion(RuleBasedStateMachine):
    """A landing folder under way; `versions` is what it ever held, `seen` what the ledger ever said."""

    def __init__(self) -> None:
        super().__init__()
        self.usual, ledgers.COMMITS_PER_SNAPSHOT = ledgers.COMMITS_PER_SNAPSHOT, 4
        self.folder = Path(tempfile.mkdtemp(prefix="gddl-"))
        self.table = Table.below(self.folder)
        self.versions: dict[str, list[str]] = defaultdict(list)
        self.seen: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.minutes = 0
        self.loads = 0

    def teardown(self) -> None:
        ledgers.COMMITS_PER_SNAPSHOT = self.usual
        shutil.rmtree(self.folder)

    @initialize(options=st.sampled_from(LAYOUTS), files=st.integers(1, 4))
    def begin(self, options: DmsOptions, files: int) -> None:
        self.table.options = options
        self.table.limits = BatchLimits(max_files=files, max_bytes=10**9)

    def _write(self, name: str) -> None:
        text = f"{name} version {len(self.versions[name]) + 1}"
        self.table.land(name, text)
        self.versions[name].append(text)

    @rule(count=st.integers(1, 5), step=st.sampled_from([1, 60, 60 * 20]))
    def changes_arrive(self, count: int, step: int) -> None:
        for _ in range(count):
            self.minutes += step
            self.table.now = START + timedelta(minutes=self.minutes)
            self._write(self.table.name(self.table.now))

    @rule(count=st.integers(1, 3))
    def loads_arrive(self, count: int) -> None:
        for _ in range(count):
            self.loads += 1
            self._write(f"LOAD{self.loads:08X}.csv")

    @rule(back=st.integers(1, 60 * 24 * 30))
    def a_late_file_arrives(self, back: int) -> None:
        time = START + timedelta(minutes=self.minutes - back, milliseconds=7)
        name = self.table.name(time)
        if name not in self.versions:
            self._write(name)

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def a_file_is_rewritten(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.versions)))
        if self._is_committed(name):
            self._write(name)

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def a_change_file_is_touched(self, data: st.DataObject) -> None:
        changes = [name for name in sorted(self.versions) if not name.startswith("LOAD")]
        if changes:
            name = data.draw(st.sampled_from(changes))
            self.table.land(name, self.versions[name][-1])

    @rule(days=st.integers(1, 3))
    def time_goes_by(self, days: int) -> None:
        self.minutes += days * 1440
        self.table.now = START + timedelta(minutes=self.minutes)

    @rule(lives=st.integers(0, 12), before=st.booleans(), full=st.booleans())
    def a_run_crashes(self, lives: int, before: bool, full: bool) -> None:
        self.table.storage = Mortal(lives=lives, before=before)
        try:
            self.table.run(full=full)
        except CrashError:
            pass
        finally:
            self.table.storage = Storage()
        self._poll()

    @rule(batches=st.integers(1, 3))
    def a_run_stops_early(self, batches: int) -> None:
        self.table.run(batches=batches)
        self._poll()

    @rule()
    def a_run_finds_all_but_what_is_very_late(self) -> None:
        cursor = change_time(self.table.ledger().state.cursor or "")
        self.table.run()
        self._poll()
        assert self.table.run() == []
        newest = moment(cursor or "")
        since = digits_of(newest - timedelta(seconds=seconds(self.table.options.lookback))) if newest else ""
        for name in self.versions:
            assert (change_time(name) or since) < since or self._is_committed(name), name

    @rule()
    def a_full_run_leaves_nothing(self) -> None:
        self.table.run(full=True)
        self._poll()
        rows = self.table.ledger().all_entries()
        newest = {path.removeprefix(f"{self.table.landing}/"): row.fingerprint for path, row in rows.items()}
        assert newest == {name: self._fingerprint(name) for name in self.versions}
        assert self.table.discover(full=True).waiting == ()

    @invariant()
    def each_version_is_committed_at_most_once(self) -> None:
        twice = {version: batches for version, batches in self.seen.items() if len(batches) > 1}
        assert not twice

    def _poll(self) -> None:
        for row in self.table.ledger().all_entries().values():
            self.seen[row.path, row.fingerprint].add(row.batch)

    def _is_committed(self, name: str) -> bool:
        row: FileEntry | None = self.table.ledger().all_entries().get(f"{self.table.landing}/{name}")
        return row is not None and row.fingerprint == self._fingerprint(name)

    def _fingerprint(self, name: str) -> str:
        path = f"{self.table.landing}/{name}"
        return self.table.storage.fingerprint(StoredObject(*path.rsplit("/", 1), 0, "", 0.0))


TestIngestion = Ingestion.TestCase
TestIngestion.settings = settings(stateful_step_count=25, suppress_health_check=list(HealthCheck))
