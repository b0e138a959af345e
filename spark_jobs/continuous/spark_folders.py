"""Folders that Spark can't list; one of them would end the stream."""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.discovery import FileStreamSource

_MISSING = "PATH_NOT_FOUND"


def unlisted(session: SparkSession, source: FileStreamSource, patterns: Mapping[str, str]) -> dict[str, str]:
    """Names of folders that can't be listed, and why. A missing folder is accepted: it may be created later."""
    found = {}
    for name, pattern in patterns.items():
        reader = session.read.format(source.format).option("recursiveFileLookup", "true")
        try:
            reader.schema(source.schema or "path string").load(pattern)  # lists, and opens no file
        except PySparkException as error:
            if error.getCondition() != _MISSING:
                found[name] = _first_line(error)
        except Py4JJavaError as error:
            found[name] = _first_line(error)
    return found


def _first_line(error: Exception) -> str:
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)[:300]
