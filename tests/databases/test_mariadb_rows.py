"""Rows of a real MariaDB, resynced and loaded beside changes on their way, which Debezium's events state."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import ResyncRows, Verify
from airflow_gddl.contract.spec import InitialLoad, JobOptions, TableSpec
from tests.databases.mariadb import SERVER, mariadb
from tests.databases.test_initial_load import AGAIN, NAME, done
from tests.harness.lake import Lake
from tests.one_task.postgres import execute

pytestmark = pytest.mark.skipif(SERVER is None, reason="MariaDB is not installed: apt-get install mariadb-server")
SPEC = TableSpec(
    table="shop.t", keys=("k",), dialect="debezium", options={"verify_connection": NAME}, settle="0s",
    sweep_after="0s", sweep_limit=1.0, initial_load=InitialLoad(chunk_rows=9, parallel=2),
)  # fmt: skip
_KEYS = ("a", "A", "b", "B", "\u00e4", "z ", "Z", "x'y", "100%", "_")
_FIELDS = [
    {"field": "k", "type": "string"}, {"field": "v", "type": "string", "optional": True},
    {"field": "n", "type": "int64", "optional": True},
    {"field": "at", "type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp"},
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with mariadb("--log-bin=mysql-bin", "--binlog-format=ROW", "--server-id=1", "--default-time-zone=+05:00") as engine:
        yield engine


@dataclass
class Service:
    """Statements, one row each, and a connector's events of them at their places in the binary log."""

    engine: sa.Engine
    folder: Path
    offset: int = 0
    waiting: list[dict[str, Any]] = field(default_factory=list)

    def run(self, op: str, key: str, value: str) -> None:
        statement = {
            "c": "INSERT IGNORE INTO t VALUES (:k, :v, 1, from_unixtime(1700000000))",
            "u": "UPDATE t SET v = :v, n = n + 1 WHERE k = :k", "d": "DELETE FROM t WHERE k = :k",
        }[op]  # fmt: skip
        with self.engine.begin() as connection:
            before = self._row(connection, key)
            file, at = connection.execute(sa.text("SHOW MASTER STATUS")).one()[:2]
            count = connection.execute(sa.text(statement), {"k": key, "v": value}).rowcount
            after = self._row(connection, key)
        if count:
            micros = int(datetime.now(UTC).timestamp() * 1_000_000)
            source = {"connector": "mariadb", "name": "crm", "db": "shop", "table": "t", "snapshot": "false",
                      "ts_us": micros, "ts_ms": micros // 1000, "file": file, "pos": at, "row": 0}  # fmt: skip
            parts = [{"type": "struct", "optional": True, "field": n, "fields": _FIELDS} for n in ("before", "after")]
            payload = {"op": op, "before": before if op == "d" else None, "after": after, "source": source}
            self.waiting.append({"schema": {"type": "struct", "fields": parts}, "payload": payload})

    @staticmethod
    def _row(connection: sa.Connection, key: str) -> dict[str, Any] | None:
        query = sa.text("SELECT k, v, n, unix_timestamp(at) AS at FROM t WHERE k = :k")
        found = connection.execute(query, {"k": key}).one_or_none()
        if found is None:
            return None
        moment = datetime.fromtimestamp(float(found.at), UTC).isoformat().replace("+00:00", "Z")
        return {"k": found.k, "v": found.v, "n": found.n, "at": moment}

    def write(self, chance: random.Random, *, delay: int = 0, lost: float = 0) -> None:
        count = max(0, len(self.waiting) - delay)
        events, self.waiting = self.waiting[:count], self.waiting[count:]
        first, self.offset = self.offset, self.offset + count
        lines = [json.dumps(event) for event in events if chance.random() >= lost]
        if lines:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"t+0+{first:010d}.json").write_text("\n".join(lines) + "\n")

    def some(self, chance: random.Random, count: int = 12) -> None:
        for _ in range(count):
            key = f"{chance.choice(_KEYS)}{chance.randrange(4)}"
            self.run(chance.choice("cud"), key, str(chance.random()))


def rows(lake: Lake) -> set[tuple[Any, ...]]:
    found = pa.table(DeltaTable(lake.layout(SPEC).replica).scan()).to_pylist()
    return {(row["k"], row["v"], row["n"], row["at"].timestamp()) for row in found}


def truth(engine: sa.Engine) -> set[tuple[Any, ...]]:
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT k, v, n, unix_timestamp(at) FROM t")).all()
    return {(row.k, row.v, row.n, float(row[3])) for row in found}


@pytest.mark.parametrize(("seed", "collation"), [(0, "utf8mb4_bin"), (1, "utf8mb4_general_ci"), (2, "utf8mb4_bin")])
def test_loads_and_resyncs_beside_changes_end_in_the_source(
    seed: int, collation: str, server: sa.Engine, tmp_path: Path
) -> None:
    """Keys of one letter in two cases, whose order is another one in the database."""
    chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
    columns = f"k varchar(9) CHARACTER SET utf8mb4 COLLATE {collation} PRIMARY KEY, v text, n bigint, at timestamp(6)"
    execute(server, "DROP TABLE IF EXISTS t", f"CREATE TABLE t ({columns} NULL)")
    lake = Lake(tmp_path)
    service = Service(server, Path(lake.layout(SPEC).landing))
    service.some(chance, 60)
    service.write(chance, delay=10)
    done(lake, server, SPEC)
    for _ in range(3):
        service.some(chance)
        service.write(chance, delay=4, lost=0.4)
        done(lake, server, SPEC)
    service.write(chance, lost=0.4)
    service.some(chance)
    for _ in range(3):
        keys = tuple({"k": key} for key in sorted({row[0] for row in rows(lake) | truth(server)}))
        done(lake, server, SPEC, JobOptions(action=ResyncRows(keys=keys)))
        service.some(chance)
        service.write(chance, delay=5)
    service.write(chance)
    done(lake, server, SPEC)
    assert rows(lake) == truth(server)
    service.some(chance)
    service.write(chance, lost=1)
    done(lake, server, SPEC, AGAIN)
    done(lake, server, SPEC)
    assert rows(lake) == truth(server)
    assert done(lake, server, SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"
