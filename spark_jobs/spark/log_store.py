"""The log store with which Spark commits to S3: a page of Java, compiled when it is first needed.

Spark brings a compiler (Janino), so that neither a JDK nor a JAR of ours is needed (decision 040).
"""

from __future__ import annotations

import hashlib
import importlib.resources
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_gddl.stores import Storage

CLASS = "gddl.ConditionalLogStore"
SETTINGS = {f"spark.delta.logStore.{scheme}.impl": CLASS for scheme in ("s3", "s3a")}
_FILE = Path(*CLASS.split(".")).with_suffix(".class")


def class_folder(home: Path) -> Path:
    """The folder for the class path, made if need be; the JVM searches it when the class is requested.

    Args:
        home: the cache of JARs.
    """
    folder = home / f"log-store-{hashlib.sha256(_source().encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compile_into(folder: Path, session: SparkSession) -> None:
    """See that the class is in the folder, which is on the session's class path."""
    target = folder / _FILE
    if target.exists():
        return
    jvm: Any = session._jvm  # noqa: SLF001 - Java is compiled where Java is
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_source())
    # Appears at once: another job may be doing the same.
    Storage().write(str(target.absolute()), bytes(compiler.getBytecodes().get(CLASS)))


def _source() -> str:
    place = importlib.resources.files("spark_jobs") / "java" / "gddl" / "ConditionalLogStore.java"
    return place.read_text(encoding="utf-8")
