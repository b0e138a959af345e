"""A table of several sources: their landing folders, and an oracle by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.spec import TableSpec
from tests.harness.landing import write

Row = tuple[str, int, str]
"""Operation, id, v."""


@dataclass
class Sharded:
    """What each source of the table `s.t` landed, and what it holds.

    Attributes:
        truth: by source, id to v.
        files: by source, the number of its newest change file; sequences of sources overlap.
    """

    root: Path
    shards: Sequence[str]
    fields: Mapping[str, Any] = field(default_factory=dict)
    truth: dict[str, dict[int, str]] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for shard in self.shards:  # a landing root that is missing is a fault
            (self.root / f"landing-{shard}").mkdir(parents=True, exist_ok=True)

    @property
    def spec(self) -> TableSpec:
        landings = {shard: str(self.root / f"landing-{shard}") for shard in self.shards}
        return TableSpec(
            table="s.t", shards=tuple(self.shards),
            shard_landings=landings,
            **{"keys": ("_source", "id"), "sequence_by": ("seq",), "settle": "0s", **self.fields},
        )  # fmt: skip

    @property
    def expected(self) -> dict[tuple[str, int], str]:
        return {(shard, key): value for shard, rows in self.truth.items() for key, value in rows.items()}

    def folder(self, shard: str) -> Path:
        return self.root / f"landing-{shard}" / "s" / "t"

    def load(self, shard: str, rows: Mapping[int, str], name: str = "LOAD00000001.parquet") -> None:
        table = pa.table({"id": pa.array(list(rows), pa.int32()), "v": pa.array(list(rows.values()), pa.string())})
        write(self.folder(shard), name, table)
        self.truth[shard] = dict(rows)

    def change(self, shard: str, *rows: Row) -> None:
        number = self.files[shard] = self.files.get(shard, 0) + 1
        self.land(shard, number, rows)
        held = self.truth.setdefault(shard, {})
        for operation, key, value in rows:
            if operation == "D":
                held.pop(key, None)
            else:
                held[key] = value

    def land(self, shard: str, number: int, rows: Sequence[Row], **columns: Any) -> None:
        """A change file that the oracle does not know."""
        own = {
            "Op": [row[0] for row in rows],
            "seq": [100 * number + i for i in range(len(rows))],
            "id": pa.array([row[1] for row in rows], pa.int32()),
            "v": pa.array([row[2] for row in rows], pa.string()),
        }
        write(self.folder(shard), f"20240101-{number:09d}.parquet", pa.table({**own, **columns}))


def rows_of(replica: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """Rows of a replica as `Sharded.expected` has them."""
    rows = {(row["_source"], row["id"]): row["v"] for row in replica}
    assert len(rows) == len(replica)
    return rows
