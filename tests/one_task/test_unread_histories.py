"""Whatever files can't be read for a while, and whatever is done meanwhile: in the end their changes count in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import HandleErrors, Maintain, Rebuild, Verify
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

KEYS = 12
SPEC = spec_of(settle="0s", history=True)
ACTIONS = (
    JobOptions(), JobOptions(), JobOptions(action=HandleErrors(mode="replay")), JobOptions(action=Rebuild()),
    JobOptions(action=Maintain()), JobOptions(action=HandleErrors(mode="replay", codes=("FILE_UNREADABLE",))),
)  # fmt: skip


class _Damaged(Storage):
    """Some files can't be read."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self.names = names

    def open_input(self, path: str) -> BinaryIO:
        if path.rpartition("/")[2] in self.names:
            raise ValueError("damaged")
        return super().open_input(path)


@dataclass
class Source:
    """Rows of a source, and what its service writes.

    Attributes:
        waiting: names and contents of files that are not delivered yet; files may come late.
    """

    chance: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    sequence: int = 0
    waiting: list[tuple[str, pa.Table]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = {key: f"load {key}" for key in range(0, KEYS, 2)}
        for number, keys in enumerate((range(0, 4, 2), range(4, 8, 2), range(8, KEYS, 2)), start=1):
            table = pa.table({"id": pa.array(list(keys), pa.int32()), "v": [f"load {key}" for key in keys]})
            self.waiting.append((f"LOAD0000000{number}.parquet", table))
        for number in range(14):
            self.waiting.append((f"20240101-{number:09d}.parquet", self._changes()))

    def _changes(self) -> pa.Table:
        found: dict[str, list[Any]] = {"Op": [], "seq": [], "id": [], "v": []}
        for _ in range(self.chance.randrange(1, 5)):
            key, self.sequence = self.chance.randrange(KEYS), self.sequence + 1
            op = self.chance.choice("UUD") if key in self.rows else "I"
            value = None if op == "D" else f"{op} {self.sequence}"
            if value is None:
                del self.rows[key]
            else:
                self.rows[key] = value
            for name, one in zip(found, (op, self.sequence, key, value), strict=True):
                found[name].append(one)
        return pa.table({**found, "id": pa.array(found["id"], pa.int32()), "v": pa.array(found["v"], pa.string())})

    def deliver(self, folder: Path) -> Iterator[str]:
        """A few files, not always the oldest ones; loads come before any change."""
        loads = [one for one in self.waiting if one[0].startswith("LOAD")]
        chosen = loads or self.waiting[: self.chance.randrange(1, 5)]
        for one in list(chosen):
            if loads or self.chance.random() < 0.8:
                self.waiting.remove(one)
                write(folder, *one)
                yield one[0]


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(6))
def test_files_that_are_read_later_end_in_the_source(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
    source, lake, damaged = Source(chance), Lake(tmp_path), set[str]()
    landing = Path(lake.layout(SPEC).landing)

    def run(options: JobOptions) -> None:
        runtime = Runtime(storage=_Damaged(damaged), spark=NoSpark())
        job = lake.job([SPEC], options)
        found = attempt(TableRun(job=job, spec=SPEC, runtime=runtime), totals_of(job))
        assert isinstance(found, TableOutcome), found
        error = found.result.error
        assert error is None or error.code in {"FIRST_LOAD_UNREADABLE", "LOAD_UNREADABLE"}, error
        unread = sum(w.count for w in found.result.warnings if w.code == "FILE_UNREADABLE")
        assert unread <= len(damaged)

    while source.waiting:
        names = list(source.deliver(landing))
        damaged |= {name for name in names if chance.random() < 0.4}
        damaged -= {name for name in damaged if chance.random() < 0.2}
        run(chance.choice(ACTIONS))
    run(JobOptions())
    damaged.clear()
    run(JobOptions())
    run(JobOptions(action=HandleErrors(mode="replay")))
    assert lake.replica(SPEC) == source.rows
    listed = lake.done(SPEC, JobOptions(action=HandleErrors()))
    assert listed.details["unresolved"] == 0
    assert lake.done(SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"
    lake.done(SPEC, JobOptions(action=Rebuild()))
    assert lake.replica(SPEC) == source.rows
