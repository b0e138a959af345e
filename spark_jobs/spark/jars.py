"""JARs that the embedded Spark needs beyond its own: resolved once from Maven Central, then kept.

Which Delta Lake goes with which Spark says `contract.spark_versions`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyspark

from airflow_gddl.contract import spark_versions as versions
from airflow_gddl.contract.codes import DELTA_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.packages import package_missing
from airflow_gddl.stores import scratch as scratch_folders

_LOG = logging.getLogger(__name__)
_PYSPARK = Path(pyspark.__file__).parent

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
        coordinates: Maven's, `group:artifact:version`.
        excluded: `group:artifact` that they would bring along.
        wanted: how the names of those that go to the class path begin; empty: all of them.
        other: taken, with a warning, where these can't be had: a mirror of Maven Central may lag behind PyPI.
    """

    name: str
    what: str
    coordinates: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    other: JarSet | None = None


def delta() -> JarSet:
    """The JARs of the installed delta-spark, for the installed pyspark.

    Raises:
        FatalError: as `delta_of_packages`; `PACKAGE_MISSING`: delta-spark is not installed.
    """
    try:
        package = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError as error:
        raise package_missing("a job with Spark", "delta") from error
    version = versions.delta_of_packages(pyspark.__version__, package)
    known = versions.DELTA.get(versions.series(version))
    other = _delta(known.version) if known is not None and known.version != version else None
    return replace(_delta(version), other=other)


def _delta(version: str) -> JarSet:
    return JarSet(
        name=f"delta-{version}-spark-{versions.text(versions.series(pyspark.__version__))}",
        what=f"Delta {version}",
        coordinates=(versions.artifact(pyspark.__version__, version),),
        excluded=("org.apache.hadoop:*",),
        wanted=(
            "io.delta_delta-spark",
            "io.delta_delta-storage",
            "io.delta_delta-kernel",
            "io.unitycatalog_unitycatalog",
        ),
    )


def s3a() -> JarSet:
    """S3A with the few modules of Amazon's SDK that it uses, not the bundle of all (14 MB instead of 650).

    It is a part of Hadoop, and must have the very version that the installed Spark brings.
    """
    hadoop = hadoop_version()
    sdk = versions.AWS_SDK.get(hadoop, versions.AWS_SDK[max(versions.AWS_SDK)])
    modules = ("s3", "s3-transfer-manager", "sts", "sso", "apache-client", "netty-nio-client")
    return JarSet(
        name=f"hadoop-aws-{hadoop}-sdk-{sdk}",
        what=f"S3A {hadoop}",
        coordinates=(
            f"org.apache.hadoop:hadoop-aws:{hadoop}",
            *(f"software.amazon.awssdk:{module}:{sdk}" for module in modules),
        ),
        excluded=("software.amazon.awssdk:bundle", "org.wildfly.openssl:*"),
    )


def hadoop_version() -> str:
    """Of the Hadoop that the installed Spark brings.

    Raises:
        FatalError: `DELTA_MISSING`.
    """
    releases = [path.stem.rpartition("-")[2] for path in _PYSPARK.glob("jars/hadoop-client-api-*.jar")]
    if not releases:
        what = f"the Spark in {_PYSPARK} brings no Hadoop"
        raise FatalError(DELTA_MISSING, what, remedy="install pyspark with pip, which has Hadoop in it")
    return releases[0]


def cache_folder() -> Path:
    """
    Raises:
        FatalError: `DELTA_MISSING`: the user of this process has no folder.
    """
    if "GDDL_JARS" in os.environ:
        return Path(os.environ["GDDL_JARS"])
    home = os.path.expanduser("~")  # noqa: PTH111 - it leaves ~ where a user has no home, as Airflow and boto3 do
    if home == "~":
        what = f"there is no place for JARs: HOME is not set, and the user {os.getuid()} has no name"
        raise FatalError(DELTA_MISSING, what, remedy="set HOME or GDDL_JARS to a folder that this user can write")
    return Path(home, ".cache", "airflow-gddl")


def place_for(name: str, parts: Iterable[object]) -> Path:
    """A path in the cache that these parts tell from others of the name."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]
    return cache_folder() / f"{name}-{digest}"


def changed(path: Path) -> int:
    """When a file was changed; 0: there is none. In seconds: the layers of a container image keep no fractions."""
    return int(path.stat().st_mtime) if path.exists() else 0


def fetch(jars: Path, scratch: Path, bundle: JarSet) -> str:
    """Fetch the JARs with a Spark in another process, so that this one starts with a plain class path.

    The JARs appear at once, since two jobs may need them at the same time.

    Returns:
        Spark's error message; empty: none.
    """
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        staged = scratch_folders.make("jars", jars.parent)
    except OSError as error:  # of a container whose user has no home
        return f"{jars.parent} can't be written ({error.strerror}); name another folder in GDDL_JARS"
    ivy = scratch / "ivysettings.xml"
    ivy.write_text(_IVY)
    nothing = scratch / "nothing.py"
    nothing.write_text("")
    cache = scratch / f"ivy-{bundle.name}"
    submit = _PYSPARK / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", "--packages", ",".join(bundle.coordinates)]
    command += ["--exclude-packages", ",".join((*_SPARKS_OWN, *bundle.excluded))]
    for key, value in {"spark.jars.ivy": cache, "spark.jars.ivySettings": ivy, "spark.ui.enabled": "false"}.items():
        command += ["--conf", f"{key}={value}"]
    environment = {**os.environ, "SPARK_HOME": str(submit.parent.parent), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(  # noqa: S603 - no part comes from outside
        [*command, str(nothing)], check=False, capture_output=True, text=True, timeout=600, env=environment
    )
    said = [line.strip() for line in done.stderr.splitlines() if "not found" in line or "Exception" in line]
    words = " / ".join(said[-3:])[:500]
    for jar in (cache / "jars").glob("*.jar"):
        shutil.copy2(jar, staged / jar.name)
    if not any(staged.glob("*.jar")):
        scratch_folders.remove(staged)
        return words
    scratch_folders.release(staged)
    try:
        staged.rename(jars)
    except OSError:  # another job was quicker
        shutil.rmtree(staged)
    return words


def class_path(bundle: JarSet, scratch: Path, fetched: Callable[[Path, Path, JarSet], str] = fetch) -> list[str]:
    """Its JARs: from the cache of an earlier start, else resolved now.

    Spark's default resolver also asks a second repository and prints a page of errors when that is out of reach; our
    own settings ask Central only.

    Args:
        fetched: see `fetch`.

    Raises:
        FatalError: `DELTA_MISSING`: they are not in the cache and can't be had.
    """
    said = ""
    for each in (bundle, bundle.other):
        if each is None:
            continue
        jars = _kept(each)
        if not jars:
            words = fetched(cache_folder() / each.name, scratch, each)
            said = said or words
            jars = _kept(each)
        if jars and each is not bundle:
            _LOG.warning("the JARs of %s could not be had (%s): those of %s are used", bundle.what, said, each.what)
        if jars:
            return jars
    raise FatalError(
        DELTA_MISSING,
        f"the JARs of {bundle.what} could not be had from Maven Central: {said}",
        remedy=f"open the way to Maven Central, or put the JARs into {cache_folder() / bundle.name}",
    )


def _kept(bundle: JarSet) -> list[str]:
    """Its JARs in the cache, for the class path."""
    jars = (cache_folder() / bundle.name).glob("*.jar")
    return sorted(str(path) for path in jars if not bundle.wanted or path.name.startswith(bundle.wanted))
