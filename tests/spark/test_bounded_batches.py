"""Many waiting files: batches within the tier's limits, each committed by itself (design, rules 4 and 5)."""

from __future__ import annotations

import signal
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from airflow_gddl.contract.spec import JobOptions, TableSpec, TierSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.strategies import file_of
from tests.oracle import DeliveredFile, Run, replay
from tests.spark.children import killed_child
from tests.spark.crash_tables import COLUMNS, TYPES, change
from tests.spark.table_lines import by_engine, by_oracle, differences

pytestmark = pytest.mark.deep_on_many

FILES, AT_ONCE, KEYS = 300, 50, 40
KILLED_IN = 3
LARGE, SMALL = 3000, 10


def spec_of(name: str) -> TableSpec:
    return TableSpec(table=f"bounded.{name}", keys=("id",), before_image_prefix="BI_")


def small_file(number: int) -> DeliveredFile:
    """An update of one key and, every other time, a delete of another."""
    rows = [change("U", 2 * number, number % KEYS, f"file {number}")]
    rows += [change("D", 2 * number + 1, (7 * number + 3) % KEYS)] if number % 2 else []
    return file_of(f"20240101-{number:09d}.parquet", load=False, rows=rows, columns=COLUMNS)


def batches_of(lake: Lake, spec: TableSpec) -> dict[int, list[tuple[str, int]]]:
    """Batch number to its files' names and sizes, as the ledger tells."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for entry in lake.ledger(spec).all_entries().values():
        found[entry.batch].append((Path(entry.path).name, entry.size))
    return dict(sorted(found.items()))


def test_kill_between_batches_resumes(spark: LocalPort, tmp_path: Path) -> None:
    lake = Lake(tmp_path, TierSpec(max_files_per_batch=AT_ONCE))
    spec, run = spec_of("many"), Run(tuple(map(small_file, range(FILES))))
    lake.land(spec, run, TYPES)
    ended = killed_child(spark.tiered(lake.job([spec], run_id="dies")), "replica", KILLED_IN)
    assert ended.status == -signal.SIGKILL, ended
    done = batches_of(lake, spec)
    assert {number: len(files) for number, files in done.items()} == {1: AT_ONCE, 2: AT_ONCE}

    result = lake.results(spark, lake.job([spec], run_id="rerun"))[spec.table]
    assert (result.status, result.batches, result.files) == ("succeeded", FILES // AT_ONCE - 2, FILES - 2 * AT_ONCE)
    batches = batches_of(lake, spec)
    assert {number: len(files) for number, files in batches.items()} == dict.fromkeys(range(1, 7), AT_ONCE)
    assert {number: batches[number] for number in done} == done
    names = [sorted(name for name, _ in files) for files in batches.values()]
    assert names == sorted(names), "batches are not in the order of the files"
    assert differences(by_oracle(replay(spec, [run]), spec), by_engine(lake.layout(spec))) == []


def test_stop_request_ends_batches(spark: LocalPort, tmp_path: Path) -> None:
    """`max_batches`: what is left waits for the next run."""
    lake = Lake(tmp_path, TierSpec(max_files_per_batch=2))
    spec, run = spec_of("some"), Run(tuple(map(small_file, range(6))))
    lake.land(spec, run, TYPES)
    part = lake.results(spark, lake.job([spec], JobOptions(max_batches=2)))[spec.table]
    rest = lake.results(spark, lake.job([spec]))[spec.table]
    assert [(r.batches, r.files) for r in (part, rest)] == [(2, 4), (1, 2)]
    assert differences(by_oracle(replay(spec, [run]), spec), by_engine(lake.layout(spec))) == []


def test_byte_limit_bounds_batches(spark: LocalPort, tmp_path: Path) -> None:
    """Small files share a batch as far as they fit; one that is over the limit by itself goes alone."""
    limit = 9_000
    lake = Lake(tmp_path, TierSpec(max_bytes_per_batch=limit))
    files = [_sized(number, LARGE if number == 4 else SMALL) for number in range(8)]
    spec, run = spec_of("bytes"), Run(tuple(files))
    lake.land(spec, run, TYPES)
    result = lake.results(spark, lake.job([spec]))[spec.table]
    batches = batches_of(lake, spec)
    sizes = [[size for _, size in files] for files in batches.values()]
    assert result.batches == len(batches)
    assert all(sum(found) <= limit or len(found) == 1 for found in sizes)
    assert any(sum(found) > limit for found in sizes), "the large file is not over the limit"
    full = pairwise(sizes)
    assert all(sum(here) + following[0] > limit for here, following in full), "a batch ended before it was full"
    assert differences(by_oracle(replay(spec, [run]), spec), by_engine(lake.layout(spec))) == []


def _sized(number: int, rows: int) -> DeliveredFile:
    first = number * LARGE
    filled = [change("I", first + n, first + n, f"{(first + n) * 2654435761 % 2**32:032x}") for n in range(rows)]
    return file_of(f"20240101-{number:09d}.parquet", load=False, rows=filled, columns=COLUMNS)
