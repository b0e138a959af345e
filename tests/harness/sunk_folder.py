"""A table's folder as a sink fills it that partitions by time, and runs over it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.rooms.dialects.debezium import DebeziumDialect
from spark_jobs.rooms.dialects.protocol import Dialect
from tests.harness.landing_folder import START, Table

HOURLY = "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
FORMATS = {
    HOURLY: "year=%Y/month=%m/day=%d/hour=%H",
    "'year'=YYYY/'month'=MM/'day'=dd": "year=%Y/month=%m/day=%d",
    "yyyy/MM/dd": "%Y/%m/%d",
    "yyyy/MM/dd/HH": "%Y/%m/%d/%H",
    "'dt'=YYYY-MM-dd": "dt=%Y-%m-%d",
    "'date'=yyyy-MM-dd/'hour'=HH": "date=%Y-%m-%d/hour=%H",
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyyMMddHH": "%Y%m%d%H",
    "'year'=YYYY": "year=%Y",
    "'events/orders/'yyyy/MM": "events/orders/%Y/%m",
}
"""Settings of a sink, and the folder that it makes."""


@dataclass
class Sunk(Table):
    """`sink` are the row's options; `made` is the sink's own format, whatever the row says."""

    sink: DebeziumOptions = field(default_factory=lambda: DebeziumOptions(path_format=HOURLY))
    made: str = HOURLY
    offset: int = 0

    @classmethod
    def configured(cls, folder: Path, path_format: str = HOURLY, lookback: str = "7d") -> Sunk:
        options = DebeziumOptions(path_format=path_format, lookback=lookback)
        return cls(f"{folder}/landing", f"{folder}/ledger", sink=options, made=path_format)

    @property
    def dialect(self) -> Dialect:
        return DebeziumDialect(TableSpec(table="public.orders", keys=("id",), dialect="debezium"), self.sink)

    def folder(self, time: datetime) -> str:
        return time.strftime(FORMATS[self.made])

    def sunk(self, time: datetime, partition: int = 0, offset: int | None = None) -> str:
        """Another file, into the folder of this time."""
        self.offset += 1
        number = self.offset if offset is None else offset
        return self.land(f"{self.folder(time)}/orders+{partition}+{number:010d}.json", f"{self.offset}")

    def sink_on(self, count: int, step: timedelta, since: datetime = START) -> list[str]:
        """Files at a steady pace; the clock moves on to the last one's time."""
        self.now = max(self.now, since + count * step)
        return [self.sunk(since + number * step) for number in range(count)]

    def known(self) -> Iterable[str]:
        return [path.removeprefix(f"{self.landing}/") for path in self.ledger().all_entries()]
