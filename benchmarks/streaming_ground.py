"""What `streaming.py` works on: tables that get files one by one, and what their replicas must hold."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import Continuous, JobOptions, JobSpec, Roots, TableSpec, TierSpec

TABLES = 10
_ROWS, _CHANGES = 10_000, 20


@dataclass
class Table:
    """One table: what landed, when, and what the replica must hold. Values count up, so that each tells its file.

    Attributes:
        landed: moment of each change file, by the wall clock, oldest first.
        rows: key to value.
    """

    spec: TableSpec
    layout: Layout
    landed: list[float] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    changes: int = 0

    def load(self) -> None:
        self.rows = dict.fromkeys(range(_ROWS), 0)
        keys = pa.array(self.rows, pa.int64())
        self._land("LOAD00000001.parquet", {"id": keys, "v": pa.array(self.rows.values(), pa.int64())})

    def change(self, chance: random.Random) -> None:
        """A file of updates, an insert and a delete."""
        number = len(self.landed) + 1
        keys = [*chance.sample(range(_ROWS), _CHANGES - 2), _ROWS + number]
        ops = ["U"] * (_CHANGES - 2) + ["I"]
        self.rows |= dict.fromkeys(keys, number)
        if (old := _ROWS + number - 3) in self.rows:
            keys, ops = [*keys, old], [*ops, "D"]
            del self.rows[old]
        sequence = [f"{number:012d}{place:06d}" for place in range(len(keys))]
        columns = {"Op": ops, "transact_seq": sequence, "id": pa.array(keys, pa.int64()), "v": [number] * len(keys)}
        self.changes += len(keys)
        self._land(f"{datetime.now(UTC):%Y%m%d-%H%M%S}{number:09d}.parquet", columns)
        self.landed.append(time.time())

    def check(self) -> tuple[int, int]:
        """Rows and changes that were lost, and those that are there twice or should not be there."""
        if not DeltaTable.is_deltatable(self.layout.replica):
            return len(self.rows), 0
        replica = pa.table(DeltaTable(self.layout.replica).scan(columns=["id", "v"]))
        found = Counter(zip(replica["id"].to_pylist(), replica["v"].to_pylist(), strict=True))
        wanted = Counter(self.rows.items())
        changes = pa.table(DeltaTable(self.layout.changes).scan(columns=["id", "v"]))
        more = changes.num_rows - (_ROWS + self.changes)
        return sum((wanted - found).values()) + max(0, -more), sum((found - wanted).values()) + max(0, more)

    def _land(self, name: str, columns: dict[str, object]) -> None:
        folder = Path(self.layout.landing)
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{name}.tmp"
        pq.write_table(pa.table(columns), hidden)
        hidden.rename(folder / name)


@dataclass(frozen=True)
class Ground:
    """Tables below one folder, and the job that keeps them."""

    root: Path
    tasks: TableTasks
    tables: tuple[Table, ...]

    @classmethod
    def of(cls, root: Path, tasks: TableTasks, tables: int = TABLES) -> Ground:
        roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
        # Files are renamed into place, as object stores show them: none is being written when it is seen.
        names = [f"bench.t{n}" for n in range(1, tables + 1)]
        specs = [TableSpec(table=name, keys=("id",), trigger="1s", settle="0s") for name in names]
        made = cls(root, tasks, tuple(Table(spec, Layout.of(roots, spec)) for spec in specs))
        for table in made.tables:
            table.load()
        return made

    def job(self) -> JobSpec:
        roots = Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))
        tiers = {"small": TierSpec(tasks=self.tasks, cores=2)}
        specs = tuple(table.spec for table in self.tables)
        return JobSpec(
            run_id="bench", roots=roots, tables=specs, tiers=tiers, options=JobOptions(continuous=Continuous())
        )

    def check(self) -> tuple[int, int]:
        found = [table.check() for table in self.tables]
        return sum(lost for lost, _ in found), sum(doubled for _, doubled in found)
