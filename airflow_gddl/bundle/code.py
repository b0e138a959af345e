"""The job's code as one archive that Python imports from: `spark_jobs`, and what both sides share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import airflow_gddl
from airflow_gddl.bundle.archives import write_zip
from airflow_gddl.contract.errors import FatalError

SHARED = ("contract", "stores")
"""Packages of `airflow_gddl` that jobs import."""


def code_files() -> dict[str, Path]:
    """Name in the archive to file, of all modules that a job on a cluster imports.

    Raises:
        FatalError: `CODE_MISSING`.
    """
    ours = Path(airflow_gddl.__file__).parent
    found = {"airflow_gddl/__init__.py": ours / "__init__.py"}
    # Found, not imported: this side never imports the job.
    job = importlib.util.find_spec("spark_jobs")
    if job is None or job.origin is None or not ours.joinpath("__init__.py").is_file():
        remedy = "install the whole wheel of airflow-gddl, unpacked, where jobs are started"
        raise FatalError("CODE_MISSING", "the job's code lies in no folder of this Python", remedy=remedy)
    shared = {f"airflow_gddl/{name}": ours / name for name in SHARED}
    for name, folder in {**shared, "spark_jobs": Path(job.origin).parent}.items():
        found |= {f"{name}/{path.relative_to(folder).as_posix()}": path for path in sorted(folder.rglob("*.py"))}
    return found


def write_code(path: Path) -> Path:
    """Write the archive; equal code gives equal bytes."""
    found = code_files()
    return write_zip(path, {name: found[name].read_bytes() for name in sorted(found)})
