"""JARs that the embedded Spark needs beyond its own: resolved once from Maven Central, then kept."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

from airflow_gddl.contract.errors import FatalError

SCALA = "2.13"
HADOOP = "3.5.0"
"""The Hadoop that Spark 4.2 brings; S3A is a part of it that must have its very version."""
AWS_SDK = "2.35.4"
"""What this Hadoop was built against."""
# What Spark brings itself; another version of it before its own would break it.
_SPARKS_OWN = ("org.apache.parquet:*", "org.apache.logging.log4j:*", "org.slf4j:*", "com.fasterxml.jackson.core:*",
               "com.github.luben:*", "org.xerial.snappy:*", "org.roaringbitmap:*", "io.airlift:*", "commons-logging:*",
               "org.locationtech.jts:*", "io.netty:*", "commons-codec:*", "org.apache.httpcomponents:*")  # fmt: skip

_IVY = """<ivysettings>
  <settings defaultResolver="chain"/>
  <resolvers><chain name="chain" returnFirst="true">
    <ibiblio name="local-m2" m2compatible="true" root="file://${user.home}/.m2/repository/" checkmodified="false"/>
    <ibiblio name="central" m2compatible="true"/>
  </chain></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, kw_only=True)
class JarSet:
    """JARs that belong together.

    Attributes:
        name: of their folder in the cache.
        what: for messages.
        code: of the error when they can't be had.
        coordinates: Maven's, `group:artifact:version`.
        excluded: `group:artifact` that they would bring along.
        wanted: how the names of those that go to the class path begin; empty: all of them.
    """

    name: str
    what: str
    code: str
    coordinates: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


def delta() -> JarSet:
    """
    Raises:
        FatalError: `DELTA_MISSING`: the package delta-spark, which says the version, is not installed.
    """
    series = ".".join(pyspark.__version__.split(".")[:2])
    try:
        version = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError as error:
        raise FatalError("DELTA_MISSING", "the package delta-spark is not installed",
                         remedy="pip install 'airflow-gddl[spark]'") from error  # fmt: skip
    return JarSet(
        name=f"delta-{version}-spark-{series}",
        what=f"Delta {version}",
        code="DELTA_MISSING",
        coordinates=(f"io.delta:delta-spark_{series}_{SCALA}:{version}",),
        excluded=("org.apache.hadoop:*",),
        wanted=(
            "io.delta_delta-spark",
            "io.delta_delta-storage",
            "io.delta_delta-kernel",
            "io.unitycatalog_unitycatalog",
        ),
    )


def s3a() -> JarSet:
    """S3A with the few modules of Amazon's SDK that it uses, not the bundle of all (14 MB instead of 650)."""
    modules = ("s3", "s3-transfer-manager", "sts", "sso", "apache-client", "netty-nio-client")
    return JarSet(
        name=f"hadoop-aws-{HADOOP}-sdk-{AWS_SDK}",
        what=f"S3A {HADOOP}",
        code="S3A_MISSING",
        coordinates=(
            f"org.apache.hadoop:hadoop-aws:{HADOOP}",
            *(f"software.amazon.awssdk:{module}:{AWS_SDK}" for module in modules),
        ),
        excluded=("software.amazon.awssdk:bundle", "org.wildfly.openssl:*"),
    )


def cache_folder() -> Path:
    return Path(os.environ.get("GDDL_JARS", str(Path.home() / ".cache" / "airflow-gddl")))


def class_path(bundle: JarSet, scratch: Path) -> list[str]:
    """Its JARs: from the cache of an earlier start, else resolved now.

    Spark's default resolver also asks a second repository and prints a page of errors when that is out of reach; our
    own settings ask Central only.

    Raises:
        FatalError: the bundle's code: they are not in the cache and can't be had.
    """
    jars = cache_folder() / bundle.name
    log = "" if jars.exists() else _resolve(jars, scratch, bundle)
    found = sorted(str(p) for p in jars.glob("*.jar") if not bundle.wanted or p.name.startswith(bundle.wanted))
    if not found:
        raise FatalError(
            bundle.code,
            f"the JARs of {bundle.what} could not be had from Maven Central: {log}",
            remedy=f"open the way to Maven Central, or put the JARs into {jars}",
        )
    return found


def _resolve(jars: Path, scratch: Path, bundle: JarSet) -> str:
    """Let a Spark of its own process fetch the JARs, so that this one starts with a plain class path; its last words.

    They appear all at once, for two jobs may want them at the same time.
    """
    ivy = scratch / "ivysettings.xml"
    ivy.write_text(_IVY)
    nothing = scratch / "nothing.py"
    nothing.write_text("")
    cache = scratch / f"ivy-{bundle.name}"
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", "--packages", ",".join(bundle.coordinates)]
    command += ["--exclude-packages", ",".join((*_SPARKS_OWN, *bundle.excluded))]
    for key, value in {"spark.jars.ivy": cache, "spark.jars.ivySettings": ivy, "spark.ui.enabled": "false"}.items():
        command += ["--conf", f"{key}={value}"]
    environment = {**os.environ, "SPARK_HOME": str(submit.parent.parent), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(  # noqa: S603 - nothing in it comes from outside
        [*command, str(nothing)], check=False, capture_output=True, text=True, timeout=600, env=environment
    )
    said = [line.strip() for line in done.stderr.splitlines() if "not found" in line or "Exception" in line]
    words = " / ".join(said[-3:])[:500]
    jars.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=jars.parent))
    for jar in (cache / "jars").glob("*.jar"):
        shutil.copy2(jar, staged / jar.name)
    if not any(staged.iterdir()):
        staged.rmdir()
        return words
    try:
        staged.rename(jars)
    except OSError:  # another job was quicker
        shutil.rmtree(staged)
    return words
