"""airflow-gddl: one metadata row brings a database table into Delta Lake and keeps it there.

Airflow imports this module before its configuration is ready, so nothing heavy is imported here.
"""

from __future__ import annotations

__all__ = ["Lake", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str):  # type: ignore[no-untyped-def]  # importing typing takes a while
    """`Lake`, imported when it is used."""
    if name == "Lake":
        return __import__("airflow_gddl.cli.lake", fromlist=[name]).Lake
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
