"""The DAG file that `gddl check --platform --dag FILE` writes."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.contract.errors import MetadataError

DAG_ID = "gddl_platform_check"
_TEXT = '''"""Tries this platform from a worker, the triggerer and the DAG processor; remove this file afterwards."""

from airflow_gddl.platform_check.dag import platform_check

dag = platform_check()
'''


def write_dag(path: Path) -> None:
    """
    Raises:
        MetadataError: `PATH_UNUSABLE`: a file of other content is there.
    """
    if path.exists() and path.read_bytes() != _TEXT.encode():
        remedy = "name another file in Airflow's DAGs folder"
        raise MetadataError("PATH_UNUSABLE", f"{path} is there, and another file", remedy=remedy)
    path.write_text(_TEXT, encoding="utf-8")
