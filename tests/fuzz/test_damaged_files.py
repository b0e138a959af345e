"""A damaged file is rows or `FILE_UNREADABLE`, and the files beside it are ingested."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.probe import probe_all
from spark_jobs.rooms.dialects.protocol import Unreadable, dialect_of
from spark_jobs.rules.file_rows import FileRows, read_file
from tests.fuzz.landed_forms import DMS, FORMS, damaged
from tests.harness.engine_port import EnginePort

FILES = int(os.environ.get("GDDL_EXAMPLES", "60"))
CODES = {"FILE_UNREADABLE", "FILE_EMPTY", "FILE_TYPE_UNSUPPORTED"}


def read(path: Path, form: str) -> FileRows | Unreadable:
    spec, file_format, _ = FORMS[form]
    file = PlannedFile(path=str(path), kind="change", format=file_format, size=path.stat().st_size, etag="",
                       modified="", fingerprint="", generation=1)  # fmt: skip
    probed, unreadable = probe_all(Storage(), [file], dialect_of(spec))
    return read_file(Storage(), probed[0]) if probed else unreadable[0]


def read_all(form: str, root: Path, files: int) -> None:
    content = FORMS[form][2]()
    path = root / "file"
    path.write_bytes(content)
    assert isinstance(read(path, form), FileRows), "the sound file"
    for seed in range(files):
        path.write_bytes(damaged(content, seed))
        found = read(path, form)
        assert isinstance(found, FileRows) or found.code in CODES, (seed, found)


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_raise_only_quarantinable_errors(form: str, tmp_path: Path) -> None:
    read_all(form, tmp_path, FILES)


@pytest.mark.deep
@pytest.mark.parametrize("form", FORMS)
def test_many_more_damaged_files_are_read_or_refused(form: str, tmp_path: Path) -> None:
    read_all(form, tmp_path, 100 * FILES)


@pytest.mark.parametrize(
    "form",  # on many tasks, one of each format in each change, one of them compressed
    [
        "parquet",
        pytest.param("parquet gzip", marks=pytest.mark.deep_on_many),
        pytest.param("csv", marks=pytest.mark.deep_on_many),
        "csv gzip",
    ],
)
def test_run_ingests_files_beside_a_damaged_one(engine: EnginePort, form: str, tmp_path: Path) -> None:
    """A batch of damaged files and a sound one: the sound one's rows are there, and every other file has its reason."""
    _, ending, content = FORMS[form]
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    folder = Path(Layout.of(roots, DMS).landing)
    folder.mkdir(parents=True)
    suffix = ".gz" if form.endswith("gzip") else ""
    for seed in range(8):
        name = f"20240101-{seed:09d}.{ending}{suffix}"
        (folder / name).write_bytes(damaged(content(), seed))
    (folder / f"20240102-000000000.{ending}{suffix}").write_bytes(content())
    spec = replace(DMS, sequence_by=("id",))
    job = JobSpec(run_id="fuzz", roots=roots, tables=(spec,), tiers=DEFAULT_TIERS)
    (result,) = engine.run(job)
    assert result.error is None, result.error
    held = {int(row["id"]) for row in engine.read(Layout.of(roots, spec).replica) if str(row["id"]).isdigit()}
    assert held >= set(range(100))
    reasons = {row["code"] for row in engine.read(Layout.of(roots, spec).errors)}
    of_rows = {"TEXT_NOT_UTF8", "ROW_MALFORMED"} if form == "csv" else set()
    assert reasons & {"FILE_UNREADABLE", *of_rows}
