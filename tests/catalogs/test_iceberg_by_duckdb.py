"""DuckDB attaches an Iceberg REST catalog and reads tables by name, beside a hundred batches, too.

The extensions are of PyPI, so in a folder of their own: DuckDB of this environment may be another version.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.spec import TableSpec
from tests.catalogs.world import CatalogWorld, codes, row
from tests.harness.landing import write
from tests.s3.gateway import BIN

pytestmark = pytest.mark.deep

_VERSION = "1.5.5"
_PACKAGES = ("duckdb", "duckdb-extension-iceberg", "duckdb-extension-avro", "duckdb-extension-httpfs")
_FOLDER = BIN.parent / f"duckdb-{_VERSION}"
_READER = """
import importlib, json, pathlib, sys
import duckdb

connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "httpfs", "iceberg"):
    (folder,) = importlib.import_module(f"duckdb_extension_{name}").__path__
    (file,) = pathlib.Path(folder).rglob(f"{name}.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
connection.execute(f"ATTACH '' AS ice (TYPE iceberg, ENDPOINT '{sys.argv[1]}', AUTHORIZATION_TYPE 'none')")
for line in sys.stdin:
    print(json.dumps(connection.execute(json.loads(line)).fetchall(), default=str), flush=True)
"""


@dataclass
class DuckReader:
    process: subprocess.Popen[str]

    def ask(self, sql: str) -> list[list[Any]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(sql) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "DuckDB refused it; see standard error"
        return list(json.loads(answer))


@pytest.fixture(scope="module")
def duckdb_packages() -> Path:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_FOLDER / "installed").exists():
            wanted = [*(f"{name}=={_VERSION}" for name in _PACKAGES), "pytz"]
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(_FOLDER), *wanted]
            if subprocess.run(install, check=False, timeout=600).returncode:
                pytest.skip("DuckDB's extensions could not be installed")
            (_FOLDER / "installed").touch()
    return _FOLDER


@pytest.fixture
def duck(iceberg_rest: str, duckdb_packages: Path) -> Iterator[DuckReader]:
    command = [sys.executable, "-c", _READER, iceberg_rest]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={"PYTHONPATH": str(duckdb_packages)}, **pipes) as process:
        yield DuckReader(process)
        process.terminate()


@pytest.fixture
def world(tmp_path: Path, iceberg_rest: str) -> CatalogWorld:
    database = f"d{secrets.token_hex(6)}"
    return CatalogWorld(
        tmp_path, catalogs={"main": CatalogSpec(kind="iceberg_rest", uri=iceberg_rest, database=database)}
    )


def named(world: CatalogWorld) -> str:
    return f"ice.{world.catalogs['main'].database}.orders"


def orders(**fields: Any) -> TableSpec:
    return row(iceberg=True, **fields)


def test_duckdb_reads_partitions_and_histories_by_name(world: CatalogWorld, duck: DuckReader) -> None:
    spec, name = orders(partition_by=("day", "kind"), history=True), named(world)
    folder = Path(world.lake.layout(spec).landing)
    columns = {"id": pa.array(range(6), pa.int32()), "v": [f"v{i}" for i in range(6)]}
    columns |= {"day": [date(2024, 1, 1 + i % 3) for i in range(6)], "kind": ["a b", "ü/%", "a b", None, "x=1", "a b"]}
    write(folder, "LOAD00000001.parquet", pa.table(columns))
    assert codes(world.run(spec)) == []
    select = f"SELECT id, v, day::VARCHAR, kind FROM {name}"
    wanted = [list(one) for one in zip(*(columns[c] for c in ("v", "day", "kind")), strict=True)]
    assert duck.ask(f"{select} ORDER BY id") == [[i, v, str(day), kind] for i, (v, day, kind) in enumerate(wanted)]
    assert duck.ask(f"{select} WHERE day = '2024-01-02' AND kind = 'x=1'") == [[4, "v4", "2024-01-02", "x=1"]]
    assert duck.ask(f"SELECT id FROM {name} WHERE kind IS NULL") == [[3]]
    changed = {"Op": ["U", "D"], "seq": [1, 2], "id": pa.array([0, 1], pa.int32()), "v": ["moved", "v1"]}
    changed |= {"day": [date(2024, 1, 3), date(2024, 1, 2)], "kind": ["a b", "ü/%"]}
    write(folder, "20240101-000000001.parquet", pa.table(changed))
    world.run(spec)
    assert duck.ask(f"SELECT id, v FROM {name} WHERE day = '2024-01-03' ORDER BY id") == [
        [0, "moved"],
        [2, "v2"],
        [5, "v5"],
    ]
    assert duck.ask(f"SELECT count(*) FROM {name}") == [[5]]
    versions = len(pa.table(DeltaTable(world.lake.layout(spec).history).scan()))
    assert duck.ask(f"SELECT count(*) FROM {name}__history") == [[versions]]


def test_duckdb_beside_a_hundred_batches_sees_states_of_batches_alone(world: CatalogWorld, duck: DuckReader) -> None:
    spec, lake, name = orders(), world.lake, named(world)
    lake.load(spec, rows=2)
    world.run(spec)
    seen: list[list[Any]] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.append([v for (v,) in duck.ask(f"SELECT v FROM {name} ORDER BY id")])

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(1, 101):
            lake.change(spec, number, [("U", 0, f"n{number}"), ("U", 1, f"n{number}")])
            assert codes(world.run(spec)) == []
    finally:
        ended.set()
        reader.join()
    states = [["load 0", "load 1"], *([f"n{number}"] * 2 for number in range(1, 101))]
    order = [states.index(found) for found in seen]
    assert order == sorted(order)
    assert len(set(order)) > 20
