"""A table's landing folder and ledger on disk, and runs over them without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores import local as storage_local
from spark_jobs.discovery import LandingLocation, discover
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import BatchLimits, next_batch
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.rooms.dialects.dms import DmsDialect
from spark_jobs.rooms.dialects.protocol import Dialect
from tests.harness.landed import committed

START = datetime(2024, 1, 1, tzinfo=UTC)
_FORMATS = {
    "none": "",
    "YYYYMMDD": "%Y{0}%m{0}%d/",
    "YYYYMMDDHH": "%Y{0}%m{0}%d{0}%H/",
    "YYYYMM": "%Y{0}%m/",
    "MMYYYYDD": "%m{0}%Y{0}%d/",
    "DDMMYYYY": "%d{0}%m{0}%Y/",
}
_DELIMITERS = {"slash": "/", "dash": "-", "underscore": "_", "none": ""}


def counted_stats(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths whose status listings on disk ask for, from now on; it grows."""
    stats: list[str] = []
    stat = storage_local.status_of

    def counting(of: Path | os.DirEntry[str]) -> os.stat_result | None:
        stats.append(os.fspath(of))
        return stat(of)

    monkeypatch.setattr(storage_local, "status_of", counting)
    return stats


@dataclass
class Table:
    """`landing` and `state` are paths or URLs; `storage` serves both; every folder is a large one (`cheap_names`)."""

    landing: str
    state: str
    options: DmsOptions = field(default_factory=DmsOptions)
    now: datetime = START
    storage: Storage = field(default_factory=Storage)
    cheap_names: int = 0
    limits: BatchLimits = field(default_factory=lambda: BatchLimits(max_files=1000, max_bytes=10**9))

    @classmethod
    def below(cls, folder: Path, options: DmsOptions | None = None) -> Table:
        return cls(f"{folder}/landing", f"{folder}/ledger", options or DmsOptions())

    def name(self, time: datetime) -> str:
        """Of a change file, as the options say."""
        folder = _FORMATS[self.options.date_partition].format(_DELIMITERS[self.options.date_delimiter])
        return f"{time.strftime(folder)}{time:%Y%m%d-%H%M%S}{time.microsecond // 1000:03d}.csv"

    def land(self, name: str, text: str = "I,1") -> str:
        self.storage.write(f"{self.landing}/{name}", text.encode())
        return name

    def land_changes(self, count: int, step: timedelta, since: datetime = START) -> list[str]:
        """Change files at a steady pace; the clock moves on to the last one's time."""
        self.now = max(self.now, since + count * step)
        return [self.land(self.name(since + number * step)) for number in range(count)]

    @property
    def dialect(self) -> Dialect:
        return DmsDialect(TableSpec(table="hr.employee", keys=("id",)), self.options)

    @property
    def place(self) -> LandingLocation:
        return LandingLocation(
            storage=self.storage, landing=self.landing, dialect=self.dialect, cheap_names=self.cheap_names
        )

    def ledger(self) -> Ledger:
        return Ledger.open(self.storage, self.state)

    def discover(self, *, full: bool = False) -> Discovery:
        return discover(self.place, self.ledger(), self.now, full=full)

    def run(self, *, full: bool = False, batches: int = 1000) -> list[str]:
        """What the pipeline does around its Spark part; names committed, in order."""
        ledger = self.ledger()
        return self.take(ledger, discover(self.place, ledger, self.now, full=full), batches)

    def take(self, ledger: Ledger, discovery: Discovery, batches: int = 1000) -> list[str]:
        """Commit what was found, in at most so many batches; names, in order."""
        done: list[str] = []
        for _ in range(batches):
            plan = ledger.plan()
            if plan is None:
                plan = next_batch(discovery.waiting, limits=self.limits, state=ledger.state, now=self.now)
                if plan is None:
                    break
                ledger.write_plan(plan)
            discovery = discovery.without(plan)
            ledger.commit(committed(plan, ledger.state, self.landing, discovery, self.dialect.times))
            done += self.names(plan.files)
        return done

    def names(self, files: Iterable[PlannedFile]) -> list[str]:
        return [file.path.removeprefix(f"{self.landing}/") for file in files]
