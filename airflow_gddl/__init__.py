"""airflow-gddl: one metadata row brings a database table into Delta Lake and keeps it there.

Airflow imports this module before its configuration is ready, so nothing heavy is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Lake", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`Lake`, imported when it is used."""
    if name == "Lake":
        return import_module("airflow_gddl.cli.lake").Lake
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
