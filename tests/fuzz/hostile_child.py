"""A process that takes one hostile input after the other, each within limits of time and memory, which end it.

    python -m tests.fuzz.hostile_child FOLDER --first SEED [--count N | --seconds S] [--tasks one|many]

It prints each input before it takes it, and `done` at its end; the last line of a process that was ended names the
input. An input is a file beside sound ones, with a second table, or a row of metadata.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa

from airflow_gddl.contract.codes import UNEXPECTED
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import load
from spark_jobs.batch.totals import Declined
from tests.conftest import ENGINES, LocalPort
from tests.fuzz.hostile import CANARY, FORMS, hostile_file, hostile_row, rows_as_json
from tests.harness.lake import TIER, Lake, spec_of
from tests.harness.landing import write

CPU_SECONDS, WALL_SECONDS, MEMORY = 20, 300, 2 * 1024**3
"""Of one input: files have some 100 KB, and a tier that inflates them to 32 MiB."""
BOUNDED = replace(TIER, max_inflated_bytes=32 * 1024**2)
GOOD = {"Op": ["I"], "seq": [1], "id": pa.array([7], pa.int32()), "v": ["fine"]}
Input = Callable[[Path], None]


class HostileError(AssertionError):
    """An input did what it must not."""


Run = Callable[[Lake, TableSpec], JobResult | None]
"""One run of a table; null: it is for Spark."""


def without_spark(lake: Lake, spec: TableSpec) -> JobResult | None:
    found = lake.run(spec)
    return None if isinstance(found, Declined) else found.result


def by_spark(lake: Lake, spec: TableSpec) -> JobResult | None:
    """In the session of this process, which its first input starts."""
    (result,) = LocalPort("many").run(lake.job([spec]))
    return result


def take_file(form: str, seed: int, root: Path, run: Run) -> None:
    """Its own table fails with a known code, or continues; the other one is loaded; no masked value is shown."""
    spec, name, content, whole = hostile_file(form, seed)
    spec = replace(spec, table=f"s.t{seed % 8}")  # engine `spark` writes tables in ways that their names choose
    lake, other = Lake(root, BOUNDED), spec_of("other")
    folder = Path(Layout.of(lake.roots, spec).landing)
    folder.mkdir(parents=True)
    (folder / name).write_bytes(content)
    write(Path(Layout.of(lake.roots, other).landing), "20240101-000000001.parquet", pa.table(GOOD))
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        found = [run(lake, one) for one in (spec, other, spec)]
    require_known(found[0])
    require_known(found[2])
    if lake.replica(other) != {7: "fine"}:
        raise HostileError(f"the other table was not loaded: {found[1]}")
    shown = f"{said.getvalue()} {found}"
    kept = [path for path in (root / "lake").rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    if whole and (CANARY in shown or kept):
        raise HostileError(f"a masked value is shown: {kept or shown}")


def require_known(found: JobResult | None) -> None:
    if found is None:
        return
    error = found.error
    if error is not None and error.code in (UNEXPECTED, "OUT_OF_MEMORY", "STORAGE_BUSY", "STORAGE_UNUSABLE"):
        raise HostileError(str(error))
    read = found.changes_written + found.redelivered + found.quarantined
    if error is None and found.rows_read != read:
        raise HostileError(f"rows are lost: {found}")


def take_row(seed: int, root: Path, run: Run) -> None:
    """It is refused with its problems, or taken; the row beside it is taken, and no variable is shown."""
    (root / "tables").mkdir(parents=True)
    (root / "gddl.yaml").write_text("landing: landing\nlake: lake\n")
    good: TableSpec = spec_of("other")
    beside = {"table": good.table, "keys": ["id"]}
    (root / "tables" / "rows.json").write_text(rows_as_json([hostile_row(seed), beside]), encoding="utf-8")
    catalog = load(root, os.environ)
    if good.table not in [spec.table for spec in catalog.tables]:
        raise HostileError(f"the row beside it is not taken: {list(map(str, catalog.problems))}")
    shown = f"{catalog}"
    if CANARY in shown:
        raise HostileError("a variable is shown")
    for problem in catalog.problems:
        if not (problem.code and problem.message and problem.remedy and problem.file):
            raise HostileError(f"a problem without place or way out: {problem}")
        if not str(problem).isprintable():
            raise HostileError(f"a problem that changes the terminal: {problem!r}")
    for spec in catalog.tables:
        if spec.table != good.table:
            write(Path(Layout.of(catalog.roots, spec).landing), "20240101-000000001.parquet", pa.table(GOOD))
            require_known(run(Lake(root, BOUNDED), replace(spec, size="small")))


def inputs(first: int, run: Run) -> itertools.chain[tuple[str, Input]]:
    def of_seed(seed: int) -> list[tuple[str, Input]]:
        files = [(f"{form} {seed}", lambda root, form=form: take_file(form, seed, root, run)) for form in FORMS]
        return [*files, (f"row {seed}", lambda root: take_row(seed, root, run))]

    return itertools.chain.from_iterable(map(of_seed, itertools.count(first)))


def limited(seconds: int, wall: int = WALL_SECONDS) -> None:
    """The system ends this process when it has used so much more CPU time, or has waited so long."""
    signal.alarm(wall)
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--tasks", choices=ENGINES, default="one")
    asked = parser.parse_args()
    run = by_spark if asked.tasks == "many" else without_spark
    os.environ |= {
        "GDDL_MASK_KEY": CANARY * 2,
        "GDDL_CANARY": CANARY,
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "GDDL_SETTLE": "0s",
    }
    ends = None if asked.seconds is None else time.monotonic() + asked.seconds
    take_file("parquet", -1, asked.folder / "warm", run)  # what is imported and allocated once is no input's
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY, resource.RLIM_INFINITY))
    for number, (name, take) in enumerate(inputs(asked.first, run)):
        if (asked.count is not None and number >= asked.count) or (ends is not None and time.monotonic() > ends):
            break
        print(name, flush=True)
        limited(CPU_SECONDS)
        root = asked.folder / str(number)
        take(root)
        shutil.rmtree(root)
    print("done", flush=True)


def address_space() -> int:
    """Bytes of this process, on Linux."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
