"""The home of an embedded Spark: the installed one without the JARs of libraries that no job uses.

Java opens each JAR of its class path, and Spark sets up each library that registers functions: Spark ML's alone take
a tenth of a start. So Spark is started from a folder of links, beside the cached JARs, to all else that is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

import pyspark

from airflow_gddl.stores import scratch as scratch_folders
from spark_jobs.spark import jars
from spark_jobs.spark.session_settings import is_on_a_cluster

_UNUSED: tuple[str, ...] = (
    "spark-mllib_*", "spark-graphx_*", "spark-connect_*", "spark-pipelines_*", "spark-hive-thriftserver_*",
    "breeze*", "arpack*", "blas*", "lapack*", "netlib*",
    "spark-kubernetes_*", "kubernetes-*", "spark-yarn_*", "hadoop-yarn-*",
)  # fmt: skip
"""Patterns of the JARs that are left out: machine learning, graphs, Spark's own servers, resource managers."""
_LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
"""Variable with options of the first of two Java processes, which only composes the command of the second."""


def home_of(environ: Mapping[str, str]) -> Path:
    """The home from which a job with this environment starts Spark: `SPARK_HOME`, else the installed PySpark.

    An embedded Spark's is the folder of links to it, which is made now if need be. Where it can't be made, such as in
    a cache that is read only, it is the installed one.
    """
    installed = Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    if environ.get("SPARK_HOME") or is_on_a_cluster(environ):
        return installed
    try:
        return _linked(installed)
    except OSError:
        return installed


@contextmanager
def starting() -> Iterator[None]:
    """Within it, PySpark starts Java from `home_of` this process, and the launcher takes little time."""
    home = home_of(os.environ)
    launcher = next((home / "jars").glob("spark-launcher_*.jar"), None)
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    if launcher is not None:  # found at once, not after all JARs that precede it
        options += f" -Xbootclasspath/a:{launcher}"
    added = {"SPARK_HOME": str(home), _LAUNCHER_OPTIONS: options}
    added = {name: value for name, value in added.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _linked(installed: Path) -> Path:
    """The folder of links: one for each installation and each set of its JARs."""
    parts = (pyspark.__version__, installed, jars.changed(installed / "jars"), *_UNUSED)
    home = jars.place_for(f"spark-{pyspark.__version__}", parts)
    if not home.exists():
        _make(home, installed)
    return home


def _make(home: Path, installed: Path) -> None:
    """Put the folder in its place at once: another job may make it, too."""
    home.parent.mkdir(parents=True, exist_ok=True)
    folder = scratch_folders.make("spark-home", home.parent)
    try:
        staged = folder / "home"
        (staged / "jars").mkdir(parents=True)
        for source in installed.iterdir():
            if source.name != "jars":
                (staged / source.name).symlink_to(source)
        for source in (installed / "jars").iterdir():
            if not any(fnmatch(source.name, pattern) for pattern in _UNUSED):
                (staged / "jars" / source.name).symlink_to(source)
        with suppress(OSError):  # the other job was quicker
            staged.rename(home)
        if not home.exists():
            raise FileNotFoundError(home)
    finally:
        scratch_folders.remove(folder)
