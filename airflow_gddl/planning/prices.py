"""What a planned day costs by a list of prices: runs, core hours, memory, DBUs and requests of S3."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time
from typing import NamedTuple

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.spec import size_bytes
from airflow_gddl.planning.day import DAY_SECONDS, Day
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.topology.pipeline import Pipeline

DAYS = 30
"""Days of the month that is shown."""
_NO_OWNER = ""


class Requests(NamedTuple):
    """Requests of S3: `lists` and `writes` (PUT, COPY, POST) have one price, `reads` (GET, HEAD) another."""

    lists: float
    reads: float
    writes: float


REQUESTS_OF_A_BATCH = Requests(lists=5, reads=20, writes=10)
"""Of one small table that has a change file, its ledger and its results (`tests/s3/test_requests.py`)."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """A list of prices, one YAML document; what is not named costs nothing.

    Attributes:
        currency: shown beside amounts.
        core_hour: of a core or vCPU for an hour.
        memory_gib_hour: of a GiB of memory for an hour.
        worker_hour: of one machine of a job for an hour, e.g. a DPU of Glue.
        dbu: of a DBU of Databricks.
        dbus_per_core_hour: DBUs that a core takes in an hour.
        least_seconds: seconds of a job run that are billed at least.
        run: of a job run, whatever it takes.
        list_write_1000: of 1,000 LIST, PUT, COPY or POST requests.
        read_1000: of 1,000 GET or HEAD requests.
    """

    __pydantic_config__ = STRICT

    currency: str = "USD"
    core_hour: float = 0.0
    memory_gib_hour: float = 0.0
    worker_hour: float = 0.0
    dbu: float = 0.0
    dbus_per_core_hour: float = 0.0
    least_seconds: float = 0.0
    run: float = 0.0
    list_write_1000: float = 0.0
    read_1000: float = 0.0

    @classmethod
    def of(cls, data: object) -> Prices:
        """
        Args:
            data: a document, as it was read.

        Raises:
            FatalError: `SPEC_INVALID`.
            ValueError: an amount that is no price.
        """
        prices = decode(cls, data)
        for item in fields(cls):
            value = getattr(prices, item.name)
            if item.name != "currency" and not 0 <= value < math.inf:
                raise ValueError(f"{item.name}: {value} is no price")
        return prices


@dataclass(frozen=True, kw_only=True)
class Amount:
    """What something costs in a month of `DAYS` days like the planned one.

    Attributes:
        runs: job runs of a day; of a table, those in which it has changes.
        core_hours: of a day.
        requests: of S3, of a day.
    """

    runs: float
    core_hours: float
    requests: float
    month: float

    def __add__(self, other: Amount) -> Amount:
        pairs = [getattr(self, item.name) + getattr(other, item.name) for item in fields(self)]
        return Amount(**dict(zip((item.name for item in fields(self)), pairs, strict=True)))


ZERO = Amount(runs=0.0, core_hours=0.0, requests=0.0, month=0.0)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What `gddl plan --prices` shows; each part sums to `total`, but for the runs that tables share.

    Attributes:
        owners: of tables without one, by the empty name.
        recorded: tables whose seconds and runs with changes come from records of runs; the others are assumed to have
            new files at every run, and to take as long as their tier says.
    """

    currency: str
    total: Amount
    tiers: Mapping[str, Amount]
    owners: Mapping[str, Amount]
    tables: Mapping[str, Amount]
    recorded: int


def cost_of(day: Day, prices: Prices, today: date) -> Cost:
    """
    Args:
        today: the day on which records are read.
    """
    metadata = day.metadata
    now = datetime.combine(today, time.max, UTC).timestamp()
    known = {name: recording for name, record in metadata.records.items() if (recording := _recorded(record, now))}
    tables = {name: amount for one in metadata.pipelines for name, amount in _tables(day, one, prices, known)}
    tiers: defaultdict[str, Amount] = defaultdict(lambda: ZERO)
    owners: defaultdict[str, Amount] = defaultdict(lambda: ZERO)
    for name, amount in tables.items():
        row = metadata.rows[name]
        tiers[row.size] += amount
        owners[row.owner or _NO_OWNER] += amount
    return Cost(
        currency=prices.currency,
        total=sum(tables.values(), ZERO),
        tiers=_dearest_first(tiers),
        owners=_dearest_first(owners),
        tables=_dearest_first(tables),
        recorded=len(tables.keys() & known.keys()),
    )


def _dearest_first(amounts: Mapping[str, Amount]) -> dict[str, Amount]:
    return dict(sorted(amounts.items(), key=lambda item: (-item[1].month, item[0])))


class _Recorded(NamedTuple):
    """Of one table's records: seconds of its newest run that did something, and such runs a day."""

    seconds: float
    runs: float


def _recorded(record: TableRecord, now: float) -> _Recorded | None:
    """Null: no run is known, or less than a day of them."""
    newest = record.newest
    if newest is None or newest.status != "succeeded" or record.changed_since is None:
        return None
    days = (now - record.changed_since) / DAY_SECONDS
    return None if days < 1 else _Recorded(newest.seconds, record.changing_runs / days)


def _tables(
    day: Day, pipeline: Pipeline, prices: Prices, known: Mapping[str, _Recorded]
) -> Iterator[tuple[str, Amount]]:
    """What each table costs: its own seconds, and an equal share of the start of the runs that it needs."""
    pace, polls = day.paces[pipeline.tier], len(day.starts.of.get(pipeline.dag_id, ()))
    is_continuous = pipeline.timing.kind == "continuous"
    runs = {name: min(known[name].runs, polls) if name in known else float(polls) for name in pipeline.tables}
    together = max(runs.values(), default=0.0)
    for name in pipeline.tables:
        own_seconds = (known[name].seconds if name in known else pace.table_seconds) / pace.at_once * runs[name]
        seconds = own_seconds + together * pace.start_seconds / len(pipeline.tables)
        if is_continuous:
            seconds = DAY_SECONDS / len(pipeline.tables)
        elif together:
            least = prices.least_seconds * together / len(pipeline.tables)
            seconds = max(seconds, least)
        yield name, _amount(day, pipeline, prices, seconds, _Work(polls, runs[name], together / len(pipeline.tables)))


class _Work(NamedTuple):
    """Of one table on the day: polls of its folder, its batches, and its share of the job runs."""

    polls: float
    batches: float
    runs: float


def _amount(day: Day, pipeline: Pipeline, prices: Prices, seconds: float, work: _Work) -> Amount:
    tier = day.metadata.tiers[pipeline.tier]
    machines = 1 + tier.workers if RUNNERS.get(day.metadata.runner).cluster else 1
    hours = seconds * machines / 3600
    core_hours = hours * tier.cores
    gib_hours = hours * size_bytes(tier.memory) / 1024**3
    lists_and_writes = work.polls + work.batches * (REQUESTS_OF_A_BATCH.lists + REQUESTS_OF_A_BATCH.writes)
    reads = work.batches * REQUESTS_OF_A_BATCH.reads
    cost = core_hours * (prices.core_hour + prices.dbu * prices.dbus_per_core_hour)
    cost += gib_hours * prices.memory_gib_hour + hours * prices.worker_hour + work.runs * prices.run
    cost += lists_and_writes / 1000 * prices.list_write_1000 + reads / 1000 * prices.read_1000
    return Amount(runs=work.batches, core_hours=core_hours, requests=lists_and_writes + reads, month=DAYS * cost)
