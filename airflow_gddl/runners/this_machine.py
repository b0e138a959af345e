"""Jobs on this machine: the local runner, and checks of Java and packages, clearer than Spark's own errors."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import ProbeSkippedError
from airflow_gddl.contract.spark_versions import check_packages
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runners.descriptor import Probe, RunnerCheck
from airflow_gddl.runners.interface import JobOutcome, Listener
from airflow_gddl.runners.job_process import JobProcess

if TYPE_CHECKING:
    from airflow_gddl.runners.registry import RunnerSettings

OLDEST = 17
_REMEDY = (
    "install a JDK or JRE 17 or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install "
    "openjdk@17; others: https://adoptium.net) and put it on PATH or point JAVA_HOME at it"
)
_VERSION = re.compile(r'version "((?:1\.)?(\d++)[^"]*)"')


@dataclass(frozen=True)
class Java:
    """A program `java`, and its version as it says it, e.g. `17.0.9`."""

    path: Path
    version: str

    def __str__(self) -> str:
        return f"{self.version}, {self.path}"


def find_java(environ: Mapping[str, str]) -> Java:
    """The `java` that Spark will start: JAVA_HOME's when that is set, else the first on PATH.

    Raises:
        FatalError: `JAVA_MISSING` or `JAVA_TOO_OLD`.
    """
    java = _find(environ)
    try:
        answer = subprocess.run(  # noqa: S603 - the program that Spark itself would start
            [str(java), "-version"], env=dict(environ), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FatalError("JAVA_MISSING", f"{java} does not start: {error}", remedy=_REMEDY) from error
    version = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or version is None:
        # macOS puts a stub `java` on PATH that only reports that no Java is installed.
        said = " ".join((answer.stderr or answer.stdout).split())[:200]
        raise FatalError("JAVA_MISSING", f"{java} is not a working Java: {said}", remedy=_REMEDY)
    if int(version[2]) < OLDEST:
        raise FatalError("JAVA_TOO_OLD", f"{java} is Java {version[2]}; Spark needs {OLDEST} or newer", remedy=_REMEDY)
    return Java(java, version[1])


def _find(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME", "")
    if home:
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise FatalError("JAVA_MISSING", f"JAVA_HOME is {home!r}, which holds no bin/java", remedy=_REMEDY)
        return java
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise FatalError("JAVA_MISSING", "there is no `java` on PATH, and JAVA_HOME is not set", remedy=_REMEDY)
    return Path(found)


class LocalRunner(JobProcess):
    """A `Runner` on this machine; JAVA_HOME and PATH of `environ` select the Java."""

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `JobProcess.run`.

        Raises:
            FatalError: `JAVA_MISSING`, `JAVA_TOO_OLD`, `JOB_NOT_STARTED`, or as `check_roots`.
            RetriableError: as `check_roots`.
        """
        if any(spec.tiers[table.size].engine == "spark" for table in spec.tables if table.size in spec.tiers):
            find_java(self.environ)
        return super().run(spec, listener)


def make(settings: RunnerSettings) -> LocalRunner:
    """See `RunnerDescriptor.runner`."""
    return LocalRunner(command=settings.command, environ=settings.environ, tick=settings.tick)


JOB_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow")


def check(given: RunnerCheck) -> Iterator[tuple[str, Probe]]:
    """See `RunnerDescriptor.check`: packages and Java of jobs on this machine."""
    yield f"runner {given.name}", job_packages
    yield "Java", lambda: _java(given)


def job_packages() -> str:
    """Versions of the job's packages.

    Raises:
        FatalError: `JOB_PACKAGE_MISSING`, or as `check_packages`.
    """
    versions = {name: installed_version(name) for name in JOB_PACKAGES}
    missing = [name for name, found in versions.items() if found is None]
    if missing:
        what = f"jobs on this machine need {', '.join(missing)}"
        raise FatalError("JOB_PACKAGE_MISSING", what, remedy="pip install 'airflow-gddl[spark]'")
    found = {name: str(version) for name, version in versions.items()}
    check_packages(found["pyspark"], found["delta-spark"])
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _java(given: RunnerCheck) -> str:
    if given.tiers and all(tier.engine == "delta_rs" and tier.spread == "processes" for tier in given.tiers):
        raise ProbeSkippedError("no table's tier needs it")
    return str(find_java(given.environ))


def installed_version(package: str) -> str | None:
    """Null: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
