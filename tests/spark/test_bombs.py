"""Small files that become large: each is quarantined by its name before it takes memory, and the others are loaded."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores.readers import Inflating
from spark_jobs.job.job_faults import translated
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.program import _settings
from spark_jobs.rooms.dialects.probe import probe, require_bounded
from spark_jobs.rules.file_rows import FileRows, read_file
from spark_jobs.tables import batch_in_memory, file_parts
from spark_jobs.tables.many_tasks import naming_files
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.lake import TIER, Lake, on_spark, read, spec_of
from tests.harness.places import Way, table_of

MB = 1024**2
BOUNDED = replace(TIER, max_inflated_bytes=80 * MB)
ROW = pa.table({"Op": ["I"], "seq": [5], "id": pa.array([7], pa.int32()), "v": ["fine"]})


def parquet(table: pa.Table, **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def columns(v: pa.Array) -> pa.Table:
    count = len(v)
    same = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), ["I"])
    return pa.table({"Op": same.cast(pa.string()), "seq": [1] * count, "id": pa.array([1] * count, pa.int32()), "v": v})


def repeated(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), [text])


def csv_bomb() -> bytes:
    return gzip.compress(b"I,1,1,a\n" * (11 * MB), 1)


def long_line() -> bytes:
    return gzip.compress(b"I,1,1," + b"a" * (90 * MB))


def in_gzip() -> bytes:
    return gzip.compress(parquet(columns(pa.array([b"\0" * (90 * MB)])), use_dictionary=False, compression="none"))


def dictionary() -> bytes:
    return parquet(columns(repeated("x" * MB, 10_000)))


def nested_dictionary() -> bytes:
    lists = pa.ListArray.from_arrays([0, 10_000], repeated("x" * MB, 10_000))
    return parquet(columns(pa.StructArray.from_arrays([lists], ["inner"])))


def rle() -> bytes:
    return parquet(columns(pa.array([7] * (8 * MB), pa.int64())))


def nested_rle() -> bytes:
    return parquet(columns(pa.ListArray.from_arrays([0, 12 * MB], pa.array([7] * (12 * MB), pa.int64()))))


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "csv": ("20240101-000000001.csv.gz", csv_bomb),
    "long_line": ("20240101-000000001.csv.gz", long_line),
    **{
        make.__name__: ("20240101-000000001.parquet", make)
        for make in (in_gzip, dictionary, nested_dictionary, rle, nested_rle)
    },
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_quarantined_and_the_others_are_loaded(spark: LocalPort, tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path, BOUNDED)
    file, make = BOMBS[name]
    options = {"csv_columns": ["seq", "id", "v"], "csv_header": False} if name in ("csv", "long_line") else {}
    spec = spec_of(settle="0s", options=options)
    landing = Path(lake.layout(spec).landing)
    landing.mkdir(parents=True)
    (landing / file).write_bytes(make())
    pq.write_table(ROW, landing / "20240101-000000002.parquet")
    result = lake.results(spark, lake.job([spec]))[spec.table]
    assert result.error is None, result.error
    (error,) = read(lake.layout(spec).errors)
    assert (error["code"], Path(error["source_file"]).name) == ("FILE_TOO_LARGE", file)
    assert "max_inflated_bytes" in error["reason"]
    assert [(row["id"], row["v"]) for row in read(lake.layout(spec).replica)] == [(7, "fine")]


def test_debezium_events_are_bounded(spark: LocalPort, tmp_path: Path) -> None:
    lake, spec = (
        Lake(tmp_path, BOUNDED),
        TableSpec(table="s.t", keys=("id",), dialect="debezium", settle="0s"),
    )
    landing = Path(lake.layout(spec).landing)
    landing.mkdir(parents=True)
    event = {"op": "c", "after": {"id": 1, "v": "a"}, "source": {"connector": "postgresql", "lsn": 1, "ts_ms": 1}}
    line = json.dumps(event).encode() + b"\n"
    (landing / "t+0+0000000000.json.gz").write_bytes(gzip.compress(line * (85 * MB // len(line))))
    (landing / "t+0+0000000001.json").write_bytes(line)
    result = lake.results(spark, lake.job([spec]))[spec.table]
    assert result.error is None, result.error
    assert [e["code"] for e in read(lake.layout(spec).errors)] == ["FILE_TOO_LARGE"]
    assert [row["v"] for row in read(lake.layout(spec).replica)] == ["a"]


@pytest.mark.parametrize("make", [dictionary, nested_dictionary, rle, nested_rle])
def test_a_bomb_takes_no_memory(make: Callable[[], bytes]) -> None:
    """Of Arrow's: it holds a dictionary once, and no rows."""
    data = make()
    planned = PlannedFile(path="p", kind="change", format="parquet", size=len(data), etag="", modified="",
                          fingerprint="", generation=1)  # fmt: skip
    before, pool = pa.total_allocated_bytes(), pa.default_memory_pool()
    source = io.BytesIO(data)
    with pytest.raises(Exception, match="FILE_TOO_LARGE"):
        require_bounded(source, planned, 80 * MB, pq.read_metadata(source))
    assert pa.total_allocated_bytes() - before < 8 * MB
    assert pool.max_memory() >= 0


def test_a_gzip_stream_is_read_in_pieces() -> None:
    data = gzip.compress(b"\0" * (256 * MB))
    tracemalloc.start()
    with pytest.raises(Exception, match="FILE_TOO_LARGE"):
        Inflating(io.BytesIO(data), 4 * MB, "p").readall()
    assert tracemalloc.get_traced_memory()[1] < 32 * MB
    tracemalloc.stop()


def test_large_values_that_are_no_bomb_are_read(spark: LocalPort, tmp_path: Path) -> None:
    """Long texts in a dictionary that few rows have, and short ones that many rows have."""
    lake, spec = Lake(tmp_path, BOUNDED), spec_of(settle="0s")
    landing = Path(lake.layout(spec).landing)
    landing.mkdir(parents=True)
    count = 2_000
    texts = pa.DictionaryArray.from_arrays(pa.array([int(i == 9) for i in range(count)], pa.int32()), ["a", "x" * MB])
    table = pa.table({"id": pa.array(range(count), pa.int32()), "v": texts})
    pq.write_table(table, landing / "LOAD00000001.parquet")
    result = lake.results(spark, lake.job([spec]))[spec.table]
    assert result.error is None, result.error
    rows = read(lake.layout(spec).replica)
    assert (len(rows), sum(len(row["v"]) for row in rows)) == (count, count - 1 + MB)


@pytest.mark.parametrize("depth", [150, 10_000, 1_000_000])
def test_deep_json_is_unreadable(spark: LocalPort, tmp_path: Path, depth: int) -> None:
    lake, spec = Lake(tmp_path), TableSpec(table="s.t", keys=("id",), dialect="debezium", settle="0s")
    landing = Path(lake.layout(spec).landing)
    landing.mkdir(parents=True)
    event = '{"op":"c","after":{"id":%d,"v":%s},"source":{"connector":"postgresql","lsn":%d,"ts_ms":1}}\n'
    (landing / "t+0+0000000000.json").write_text(event % (1, "[" * depth + "]" * depth, 1))
    (landing / "t+0+0000000001.json").write_text(event % (2, '"fine"', 2))
    result = lake.results(spark, lake.job([spec]))[spec.table]
    assert result.error is None, result.error
    assert 2 in [row["id"] for row in read(lake.layout(spec).replica)]


@pytest.mark.parametrize(
    "sign",
    [
        "SparkException: Python worker exited unexpectedly (crashed)",
        "java.io.EOFException\n\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(Factory.scala:195)",
        "java.net.SocketException: Connection reset\n\tat o.a.s.api.python.PythonWorkerFactory.createWorker$1(F.scala)",
        "SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout",
    ],
)
def test_files_of_a_task_that_died_are_named(sign: str) -> None:
    """By the number of the task in Spark's message; others keep their error."""
    died = f"Job aborted: Task 1 in stage 3.0 failed 2 times: {sign}"
    assert translated(RuntimeError(died)).code == "WORKER_DIED"
    tasks = [[], ["/landing/a.csv"]]
    with (
        pytest.raises(RetriableError, match=r"WORKER_DIED.*/landing/a\.csv"),
        naming_files(tasks),
    ):
        raise RuntimeError(died)
    with pytest.raises(RuntimeError, match="Task 1"), naming_files([[]]):
        raise RuntimeError(died)
    with pytest.raises(RuntimeError, match="division"), naming_files(tasks):
        raise RuntimeError("Task 1 in stage 3.0 failed 2 times: division by zero")


def test_the_death_of_workers_is_told_and_survived(tmp_path: Path) -> None:
    port, lake, spec = LocalPort("many"), Lake(tmp_path), spec_of(settle="0s")
    landing = Path(lake.layout(spec).landing)
    landing.mkdir(parents=True)
    count = 400_000
    for number in range(2):
        ids = pa.array(range(number * count, (number + 1) * count), pa.int32())
        texts = [f"{n * 7919 % 1_000_003} text" for n in range(count)]
        pq.write_table(pa.table({"id": ids, "v": texts}), landing / f"LOAD0000000{number + 1}.parquet")
    assert sum(f.stat().st_size for f in landing.iterdir()) > TaskBounds().load
    done = threading.Event()
    killer = threading.Thread(target=kill_workers, args=(done,))
    killer.start()
    try:
        result = lake.results(port, on_spark(lake.job([spec])))[spec.table]
    finally:
        done.set()
        killer.join()
    assert result.error is not None
    assert result.error.code == "WORKER_DIED", result.error
    assert "larger tier" in result.error.message
    after = lake.results(port, on_spark(lake.job([spec])))[spec.table]
    assert after.error is None, after.error


def kill_workers(done: threading.Event) -> None:
    """Every Python process that Spark starts for a task, until told to stop."""
    while not done.wait(0.005):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                daemon = child.parent()
                if daemon is not None and all(
                    "spark_jobs.spark.python_daemon" in p.cmdline() for p in (child, daemon) if p is not None
                ):
                    child.kill()


@pytest.mark.parametrize("way", [Way(merged=True), Way(), Way(large=True)], ids=["merged", "small", "large"])
def test_a_task_that_lacks_memory_names_its_file(way: Way, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hungry(*_: object) -> None:
        raise MemoryError("no room")

    for module in (file_parts, batch_in_memory):
        monkeypatch.setattr(module, "read_file", hungry)
    lake, spec = Lake(tmp_path), replace(spec_of(settle="0s"), table=table_of(way))
    landing = Path(lake.layout(spec).landing)
    landing.mkdir(parents=True)
    pq.write_table(ROW, landing / "20240101-000000002.parquet")
    result = lake.results(LocalPort("many").everywhere(), on_spark(lake.job([spec])))[spec.table]
    assert result.error is not None
    assert (result.error.code, "20240101-000000002.parquet" in str(result.error)) == ("OUT_OF_MEMORY", True)


@pytest.mark.parametrize(("size", "memory"), [("small", 6), ("medium", 10), ("large", 16)])
def test_python_processes_of_spark_have_a_limit_by_tier(size: str, memory: int, tmp_path: Path) -> None:
    job = Lake(tmp_path).job([spec_of(size=size)])
    assert _settings(job, verbose=False, environ={}).worker_memory == memory * 1024**3


def test_a_python_process_of_spark_keeps_its_limit(tmp_path: Path) -> None:
    """In a process of its own, for the limit stays."""
    code = "import sys; from spark_jobs.spark.tasks import limit_memory; limit_memory(2 * 1024**3)\n"
    code += "try: bytearray(4 * 1024**3)\nexcept MemoryError: print('refused')"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert ended.stdout == ("refused\n" if sys.platform == "linux" else "")


def test_many_columns_are_read_in_time_that_grows_with_them(tmp_path: Path) -> None:
    """Probing a file, of which time by the square of the columns would show."""

    def seconds(count: int) -> float:
        path = tmp_path / f"{count}.parquet"
        pq.write_table(pa.table({f"c{n}": pa.array([1], pa.int8()) for n in range(count)}), path)
        planned = PlannedFile(path=str(path), kind="change", format="parquet", size=path.stat().st_size, etag="",
                              modified="", fingerprint="", generation=1)  # fmt: skip
        start = time.process_time()
        probed = probe(Storage(), planned, DmsOptions())
        assert len(probed.columns) == count
        found = read_file(Storage(), probed)
        assert isinstance(found, FileRows)
        assert len(found.columns) == count
        return time.process_time() - start

    seconds(10)
    assert seconds(20_000) < 10 * 4 * max(seconds(5_000), 0.05)
