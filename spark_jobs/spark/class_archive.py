"""The archive of Java classes with which an embedded Spark starts sooner: Java's application class data sharing.

Java maps the classes from the archive instead of reading them from hundreds of JARs. It checks itself that an archive
fits its version and its class path, and ignores one that does not. The module `write_class_archive` writes it.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

WRITE = "spark.gddl.writeClasses"
"""Setting of a session with the file that Java is to write its archive to when it ends."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""A job's log does not mention an archive that Java does not take."""


def java_options(class_path: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Java's options to map the archive of a class path, or with `WRITE` to write one; empty: there is none.

    Args:
        class_path: as for `archive_of`.
        settings: Spark's.
        environ: as for `archive_of`.
    """
    if WRITE in settings:
        return f"-XX:ArchiveClassesAtExit={settings[WRITE]} {_QUIET}"
    archive = archive_of(class_path, environ)
    return f"-XX:SharedArchiveFile={archive} {_QUIET}" if archive.exists() else ""


def archive_of(class_path: str, environ: Mapping[str, str]) -> Path:
    """The file, whether it exists or not: it belongs to the Python environment, as Spark's own JARs do.

    Args:
        class_path: the JARs before Spark's own.
        environ: variables that choose Java, `JAVA_HOME` or `PATH`.
    """
    home = environ.get("JAVA_HOME")
    java = Path(shutil.which("java", path=f"{home}/bin" if home else environ.get("PATH")) or "java").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    digest = hashlib.sha256(f"{java}|{changed}|{pyspark.__version__}|{class_path}".encode()).hexdigest()[:16]
    return Path(sys.prefix, "share", "airflow-gddl", f"classes-{digest}.jsa")
