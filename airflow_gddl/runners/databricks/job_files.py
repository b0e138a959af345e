"""Files that Databricks needs for jobs, by `gddl bundle`."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.tools.bundle import Bundle, JobFiles, requirements


def write(bundle: Bundle, wheel: Path) -> list[Path]:
    return [bundle.text("requirements.txt", "".join(f"{line}\n" for line in [*requirements(), f"./{wheel.name}"]))]


JOB_FILES = JobFiles(write=write, extra="databricks", pins={"databricks-sdk": "0.156.0"})
