"""The way of one small change file on an existing table, in this process: what of ours it passes.

    python benchmarks/way_of_a_batch.py [--names]

A table of 1,000 rows has had a batch; another file of 100 changes comes. Counted are, of the two packages, modules of
which a function is called, distinct functions called (properties and generators too; neither comprehensions nor the
`__init__` of dataclasses), their calls, and dataclasses of which an instance is made.
Forms are the classes in which columns come from a file to the table, or a metadata row from its file to a DAG
(`FORMS`). `--names` lists what was counted. Milliseconds are the median of further such files, in wall time of a run
from its listing to its record, and in CPU time. The last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from measuring import print_figures

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec
from airflow_gddl.metadata.loading import load
from airflow_gddl.runtime.compiled.building import compile_metadata
from airflow_gddl.stores import Storage
from airflow_gddl.topology.placement import NOWHERE
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.table_job import run_guarded

PACKAGES = ("airflow_gddl", "spark_jobs")
FOLDERS = {name: Path(str(importlib.import_module(name).__file__)).parent for name in PACKAGES}
"""Where the packages are: those of the repository, or those that are installed."""
CHANGES, TIMED = 100, 15
SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), settle="0s")
FORMS = {
    "batch": (
        "Probed", "FileGroup", "RawGroup", "LandedGroup", "GroupPlan", "BatchSchema", "TableSchema", "DeliveredColumns",
        "PlannedColumns", "ColumnSelection", "SchemaPlan", "Stored", "DecodedGroup", "Schema",
    ),
    "row": ("Document", "TableFile", "Row", "NamedRow", "TableSpec", "TableRow", "PipelineDocument"),
}  # fmt: skip
"""Classes of which each instance holds the columns of a file, a batch or a table, or the fields of a metadata row."""


class Passed:
    """What is called while `counted` is open."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.made: Counter[type] = Counter()

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call":
            return
        if code.co_filename.startswith("<") and code.co_name == "__init__":
            self.made[type(frame.f_locals["self"])] += 1
        elif code.co_name[0] != "<" or code.co_name == "<lambda>":
            self.calls[code] += 1

    def functions(self) -> dict[str, int]:
        """Calls of functions of ours by `module:name`."""
        found: Counter[str] = Counter()
        for code, calls in self.calls.items():
            if (module := _module(code.co_filename)) and code.co_name != "<lambda>":
                found[f"{module}:{code.co_qualname.replace('<locals>.', '')}"] += calls
        return dict(found)

    def classes(self) -> dict[str, int]:
        """Instances of dataclasses of ours that were made."""
        ours = {kind: made for kind, made in self.made.items() if kind.__module__.startswith(PACKAGES)}
        return {f"{kind.__module__}:{kind.__qualname__}": made for kind, made in ours.items()}


def _module(file: str) -> str:
    """Name of the module of ours that the file holds; empty: it is none of ours."""
    path = Path(file)
    found = next((folder for folder in FOLDERS.values() if path.is_relative_to(folder)), None)
    if found is None:
        return ""
    return ".".join(path.relative_to(found.parent).with_suffix("").parts).removesuffix(".__init__")


def batch(folder: Path) -> tuple[Passed, dict[str, float]]:
    """What a batch passes, and its milliseconds."""
    roots = Roots(landing=str(folder / "landing"), lake=str(folder / "lake"))
    job = JobSpec(run_id="r", roots=roots, tables=(SPEC,), tiers=DEFAULT_TIERS)
    landing = Path(Layout.of(roots, SPEC).landing)
    landing.mkdir(parents=True)
    ids = pa.array(range(1_000), pa.int32())
    pq.write_table(pa.table({"id": ids, "v": [f"v{n}" for n in range(1_000)]}), landing / "LOAD00000001.parquet")
    _run(job)
    _change(landing, 1)
    _run(job)
    _change(landing, 2)
    passed = Passed()
    with passed.counted():
        _run(job)
    walls, cpus = [], []
    for number in range(3, 3 + TIMED):
        _change(landing, number)
        wall, cpu = time.perf_counter(), time.process_time()
        _run(job)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return passed, {"batch_ms": median(walls) * 1_000, "batch_cpu_ms": median(cpus) * 1_000}


def _run(job: JobSpec) -> None:
    outcome = run_guarded(job, SPEC, Runtime(storage=Storage(), spark=NoSpark()))
    assert outcome.result.status == "succeeded", outcome.result


def _change(landing: Path, number: int) -> None:
    count = CHANGES // 2
    updated, inserted = range(count), range(1_000 + number * count, 1_000 + (number + 1) * count)
    rows = {
        "Op": ["U"] * count + ["I"] * count,
        "seq": [CHANGES * number + n for n in range(CHANGES)],
        "id": pa.array([*updated, *inserted], pa.int32()),
        "v": [f"{number}-{n}" for n in range(CHANGES)],
    }
    pq.write_table(pa.table(rows), landing / f"20240101-{number:09d}.parquet")


def row(folder: Path) -> Passed:
    """A metadata row, from its file to its pipeline."""
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text("landing: landing\nlake: lake\n")
    (folder / "tables" / "s.yaml").write_text("source: s\ntables:\n  - {table: s.t, keys: [id]}\n")
    passed = Passed()
    with passed.counted():
        made = compile_metadata(load(folder, {}), (), NOWHERE, 0.0, None, "")
    assert [document.specs[0].table for document in made.documents] == ["s.t"]
    return passed


def figures(passed: Passed, forms: tuple[str, ...]) -> dict[str, int]:
    functions = passed.functions()
    names = {name.rpartition(":")[2] for name in passed.classes()}
    return {
        "modules": len({name.partition(":")[0] for name in functions}),
        "functions": len(functions),
        "calls": sum(functions.values()),
        "classes": len(passed.classes()),
        "instances": sum(passed.classes().values()),
        "forms": len(names & set(forms)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", action="store_true")
    names = parser.parse_args().names
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        passed, seconds = batch(Path(folder, "b"))
        for what, measured in (("batch", passed), ("row", row(Path(folder, "r")))):
            found |= {f"{what}_{name}": value for name, value in figures(measured, FORMS[what]).items()}
            if names:
                for name, calls in sorted({**measured.functions(), **measured.classes()}.items()):
                    print(f"{what} {calls:6,} {name}")
    found |= {name: round(value, 1) for name, value in seconds.items()}
    for name, value in found.items():
        print(f"{name:24} {value:>10,}")
    print_figures(found, *found)


if __name__ == "__main__":
    main()
