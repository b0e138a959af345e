"""airflow-gddl: one metadata row brings a database table into Delta Lake and keeps it there.

Airflow imports this module before its configuration is ready, so nothing heavy is imported here.
"""

from __future__ import annotations

__all__ = ["__version__"]
__version__ = "0.1.0"
