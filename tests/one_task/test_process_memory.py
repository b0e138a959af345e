"""Memory that a job's process keeps between arrays, and gives back after a table."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import json
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from spark_jobs.spark.tasks import give_back_memory, keep_freed_memory

def resident():
    return psutil.Process().memory_info().rss // 1024**2

keep_freed_memory()
one = pa.array(range(131_072), pa.int64())
before = resident()
arrays = [pc.add(one, number) for number in range(400)]  # of a mebibyte
del arrays
kept = resident() - before
give_back_memory()
print(json.dumps({"pool": pa.default_memory_pool().backend_name, "kept": kept, "left": resident() - before}))
"""


def played(**variables: str) -> dict[str, int | str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": ":".join(sys.path), **variables},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    result: dict[str, int | str] = json.loads(done.stdout)
    return result


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc says what it keeps")
def test_freed_memory_is_kept_until_the_table_is_done() -> None:
    found = played()
    assert found["pool"] == "system"
    assert found["kept"] > 300
    assert found["left"] < 100


def test_a_chosen_allocator_stays() -> None:
    assert played(ARROW_DEFAULT_MEMORY_POOL="mimalloc")["pool"] == "mimalloc"
