"""Writes small metadata folders for the catalog's tests."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.metadata.loading import LoadedMetadata, load
from airflow_gddl.metadata.problems import Problem

NO_TABLE = (
    "no table yet: add a metadata row to metadata/tables/shop.yaml, or let `gddl onboard SOURCE` write the rows\n"
)
"""What `gddl validate` says of a folder without rows."""
SETTINGS = "landing: landing\nlake: lake\n"


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Files by relative name; a `gddl.yaml` with relative roots is added when there is none."""
    for name, content in {"gddl.yaml": SETTINGS, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def loaded(folder: Path, files: dict[str, str | bytes], environ: dict[str, str] | None = None) -> LoadedMetadata:
    return load(write(folder, files), environ or {})


def row_file(*rows: str, head: str = "source: shop\n") -> str:
    """A YAML table file of rows in flow form, one a line; the first stands on line 3 with the usual head."""
    return head + "tables:\n" + "".join(f"  - {row}\n" for row in rows)


def only_problem(catalog: LoadedMetadata) -> Problem:
    assert len(catalog.problems) == 1, [str(problem) for problem in catalog.problems]
    return catalog.problems[0]
