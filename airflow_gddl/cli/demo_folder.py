"""The folder of `gddl demo`: metadata, DAG files, landing and lake, in the layout of a project."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from airflow_gddl.bundle.dag_files import DAG_FILES
from airflow_gddl.contract.errors import MetadataError

_MARK = ".gddl-demo"
_SETTINGS = """\
# Relative roots are relative to this folder. Each value can be set from outside, e.g. GDDL_LAKE.
landing: ../landing
lake: ../lake
runner: local

defaults:
  freshness: 2h

tiers:
  large: {cores: 2, memory: 4g}
"""
_TABLES = """\
source: nyc
tables:
  - {table: nyc.airlines}
  - {table: nyc.airports}
  - {table: nyc.planes, history: true}
  - {table: nyc.weather}
  - {table: nyc.flights, size: large, priority: high, depends_on: [nyc.airlines, nyc.airports, nyc.planes]}
"""
_KEYS = """\
keys:
  nyc.airlines: [carrier]
  nyc.airports: [faa]
  nyc.flights: [id]
  nyc.planes: [tailnum]
  nyc.weather: [origin, time_hour]
"""
_FILES = {
    "metadata/gddl.yaml": _SETTINGS,
    "metadata/tables/nyc.yaml": _TABLES,
    "metadata/keys/nyc.yaml": _KEYS,
    **{f"dags/{name}": DAG_FILES[name] for name in ("gddl.py", "gddl_metadata_problems.py")},
}


@dataclass(frozen=True)
class DemoFolder:
    """Paths of the demo."""

    root: Path

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    @property
    def dags(self) -> Path:
        return self.root / "dags"

    @property
    def airflow(self) -> Path:
        return self.root / "airflow"

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    def begin(self) -> None:
        """Recreate the folder: files of an earlier demo are removed, other files are refused.

        Raises:
            MetadataError: `DEMO_FOLDER_TAKEN`: the folder contains other files.
        """
        mark = self.root / _MARK
        if self.root.exists() and not mark.exists() and any(self.root.iterdir()):
            remedy = "choose another folder with --dir, or empty this one"
            raise MetadataError(
                "DEMO_FOLDER_TAKEN", "the folder contains other files", where=str(self.root), remedy=remedy
            )
        for old in (self.metadata, self.dags, self.airflow, self.landing, self.lake):
            shutil.rmtree(old, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def write_project(self) -> None:
        """Metadata and DAG files, the same as this project's own."""
        for name, text in _FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
