"""Process from which Spark's Python workers are forked, on one machine.

Spark puts its own `pyspark.zip` before all other folders of Python. Python keeps no compiled modules for a zip file, so
that each start and each worker would compile PySpark: most of a second. The installed package has the same modules.

What workers run is imported here, before they are forked, and kept out of their collections of garbage.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

_OF_WORKERS = ("spark_jobs.job.spread_spark", "spark_jobs.tables.one_task", "pyspark.worker")


def without_archives(path: list[str], spark_home: str) -> list[str]:
    """Python's search path without the zip files and JARs of Spark."""
    own = spark_home.rstrip(os.sep) + os.sep
    return [place for place in path if not (place.startswith(own) and place.endswith((".zip", ".jar")))]


if __name__ == "__main__":
    if os.environ.get("SPARK_HOME"):
        sys.path[:] = without_archives(sys.path, os.environ["SPARK_HOME"])
    daemon = import_module("pyspark.daemon")
    for module in _OF_WORKERS:
        import_module(module)
    gc.freeze()
    daemon.manager()
