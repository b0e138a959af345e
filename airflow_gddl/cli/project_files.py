"""Files of a project: what `gddl init` and `gddl demo` write beside the metadata."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from airflow_gddl.bundle import DAG_FILES
from airflow_gddl.contract.errors import MetadataError

SETTINGS = """\
# yaml-language-server: $schema=schema/gddl.json
# Folders are absolute, relative to this folder, or s3://bucket/prefix.
# GDDL_LANDING and GDDL_LAKE override them, so that one project serves development and production.
landing: ../landing
lake: ../lake
"""
TABLES = """\
# yaml-language-server: $schema=../schema/tables.json
# A row is a table. To add one, remove the # before its line and write its name and keys as the source has them.
# Its files are expected in <landing>/shop/orders/.
source: shop
tables:
#  - {table: shop.orders, keys: id}
#  - {table: shop.order_lines, keys: [order_id, line_no], freshness: 2h, history: true}
"""
IGNORED = """\
landing/
lake/
metadata/
"""
README = """\
# Tables in Delta Lake

Made by `gddl init`. A row in `metadata/tables/` brings a database table from the files of a change-data-capture
service into Delta Lake.

1. Set `landing` (where AWS DMS or Debezium writes files) and `lake` (where tables are kept) in `metadata/gddl.yaml`.
2. Run `gddl check`. It tries folders, permissions, connections and versions, and says what is wrong.
3. Add rows. `gddl onboard shop` proposes them for all tables that have files in the landing folder; or write the first
   row by hand in `metadata/tables/shop.yaml`.
4. Run `gddl validate`, then `gddl run`, then `gddl status`.
5. Put this folder into version control, without `landing` and `lake`. For Airflow, put `dags/` and `metadata/` side by
   side into its DAGs folder or bundle.

| path | contents |
|---|---|
| `metadata/gddl.yaml` | settings for all tables |
| `metadata/tables/` | a row for each table |
| `metadata/schema/` | JSON Schemas, for completion in editors |
| `dags/` | Airflow DAGs, made of the rows; no need to change them |
| `.airflowignore` | folders in which Airflow looks for no DAGs |
"""
PROJECT = {
    "metadata/gddl.yaml": SETTINGS,
    "metadata/tables/shop.yaml": TABLES,
    **{f"dags/{name}": text for name, text in DAG_FILES.items()},
    ".airflowignore": IGNORED,
    "README.md": README,
}


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
