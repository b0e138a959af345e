"""The Java of this machine, which Spark and Debezium's engine need."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_gddl.contract.codes import JAVA_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.packages import LEAVES_SPARK_OUT

OLDEST = 17
INSTALL_JAVA = (
    "install a JDK or JRE 17 or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install "
    "openjdk@17; others: https://adoptium.net) and put it on PATH or point JAVA_HOME at it"
)
JAVA_REMEDY = f"{INSTALL_JAVA}; or, to look at the project without Spark, set {LEAVES_SPARK_OUT}=1"
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
        FatalError: `JAVA_MISSING`.
    """
    java = java_program(environ)
    try:
        answer = subprocess.run(  # noqa: S603 - the program that Spark itself would start
            [str(java), "-version"], env=dict(environ), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _missing(f"{java} does not start: {error}") from error
    version = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or version is None:
        # macOS puts a stub `java` on PATH that only reports that no Java is installed.
        said = " ".join((answer.stderr or answer.stdout).split())[:200]
        raise _missing(f"{java} is not a working Java: {said}")
    if int(version[2]) < OLDEST:
        raise _missing(f"{java} is Java {version[2]}; Spark needs {OLDEST} or newer")
    return Java(java, version[1])


def _missing(what: str) -> FatalError:
    return FatalError(JAVA_MISSING, what, remedy=JAVA_REMEDY)


def java_program(environ: Mapping[str, str]) -> Path:
    """As `find_java`, without a look at its version.

    Raises:
        FatalError: `JAVA_MISSING`.
    """
    home = environ.get("JAVA_HOME", "")
    if home:
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise _missing(f"JAVA_HOME is {home!r}, which holds no bin/java")
        return java
    executable = shutil.which("java", path=environ.get("PATH", ""))
    if executable is None:
        raise _missing("there is no `java` on PATH, and JAVA_HOME is not set")
    return Path(executable)
