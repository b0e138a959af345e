"""Archive of Java classes from which Spark starts sooner (application class data sharing, CDS).

Java maps the classes from the archive instead of reading and verifying them in hundreds of JARs. Java checks that an
archive fits its own build and class path, and ignores one that does not. The archive lies beside the cached JARs, one
for each combination of Java, Spark and JARs. The first job that needed it starts the process that writes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyspark

from airflow_gddl.contract.python_command import module_command
from spark_jobs.spark import jars
from spark_jobs.spark.session_settings import is_on_a_cluster
from spark_jobs.spark.spark_home import home_of

WRITE = "spark.gddl.writeClasses"
"""Setting of a session with the file that Java is to write its archive to when it ends."""

IN_BACKGROUND = "--in-background"
"""Argument of the writing program: lowest priority, limited time, no output."""
S3A = "--s3a"
"""Argument of the writing program: the class path has the JARs of S3A."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java does not mention an archive that it can't use."""
_FREE = 1024**3
"""Bytes that must be free before an archive, of 200 MB, is written."""
_NEXT_ATTEMPT = 24 * 3600
"""Seconds after which attempts that left no archive are repeated."""
_ENDED = 3
"""Bytes in the mark of an attempt that has ended; one that was killed leaves one byte, so that it is repeated twice."""
_UNUSED = 30 * 24 * 3600
"""Seconds after which an archive that no job has used is removed."""
_OTHER_PLACES = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables with folders that Spark puts on the class path; Java takes no archive then."""
_ELSEWHERE = ("GDDL_SPARK_MASTER", "PYSPARK_SUBMIT_ARGS")
"""Variables of a job that the writing program, which needs an embedded Spark, must not have."""


def java_options(class_path: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Java's options to map the archive of a class path, or with `WRITE` to write one; empty: there is none.

    Args:
        class_path: as for `name_of`.
        settings: Spark's.
        environ: as for `name_of`.
    """
    if WRITE in settings:
        return f"-XX:ArchiveClassesAtExit={settings[WRITE]} {_QUIET}"
    archive = archive_of(class_path, environ)
    if archive is None:
        return ""
    with suppress(OSError):  # of another user
        os.utime(archive)  # so that it does not count as unused
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def archive_of(class_path: str, environ: Mapping[str, str]) -> Path | None:
    """The complete archive, which this process may read; None: there is none.

    Java checks whose archive it is, but aborts when a part of its own archive is missing. So its size is in its name.

    Args:
        class_path: as for `name_of`.
        environ: as for `name_of`.
    """
    name = name_of(class_path, environ)
    found = [path for path in name.parent.glob(f"{name.name}-*.jsa") if os.access(path, os.R_OK)]
    return next((path for path in found if path == _place(name, path.stat().st_size)), None)


def _place(name: Path, size: int) -> Path:
    return name.with_name(f"{name.name}-{size}.jsa")


def name_of(class_path: str, environ: Mapping[str, str]) -> Path:
    """How the archive's path begins: the same for equal Java, Spark and JARs.

    Args:
        class_path: the JARs before Spark's own.
        environ: variables that choose Java, `JAVA_HOME` or `PATH`, and Spark, `SPARK_HOME`.
    """
    home = environ.get("JAVA_HOME")
    java = Path(shutil.which("java", path=f"{home}/bin" if home else environ.get("PATH")) or "java").resolve()
    spark = home_of(environ)
    parts = (java, jars.changed(java), pyspark.__version__, spark, jars.changed(spark / "jars"), class_path)
    return jars.place_for("classes", parts)


def is_possible(class_path: str, environ: Mapping[str, str]) -> bool:
    """Whether Java can use an archive: it takes none where a folder with files is on the class path."""
    folders = [home_of(environ) / "conf", *map(Path, class_path.split(os.pathsep))]
    return not any(environ.get(name) for name in _OTHER_PLACES) and not any(path.is_dir() for path in folders)


def write_later(class_path: str, environ: Mapping[str, str], *, s3a: bool) -> bool:
    """Start the process that writes the archive, unless it exists, is impossible, or was tried within a day.

    The process outlives the caller, has the lowest priority, and writes nothing to the caller's streams.

    Args:
        class_path: as for `name_of`; empty: the JARs are not from the cache, so that there is no archive.
        environ: of the job.
        s3a: the class path has the JARs of S3A.

    Returns:
        Whether a process was started.
    """
    try:
        if not class_path or archive_of(class_path, environ) or not is_possible(class_path, environ):
            return False
        if (attempt := _claimed(name_of(class_path, environ))) is None:
            return False
        arguments = [IN_BACKGROUND, *([S3A] if s3a else [])]
        with attempt:
            subprocess.Popen(  # noqa: S603 - no part comes from outside
                module_command("spark_jobs.spark.write_class_archive", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=writing_environment(environ),
                pass_fds=[attempt.fileno()],
            )
    except OSError:  # a cache that can't be written, no memory for a process: Spark starts without an archive
        return False
    return True


def writing_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that writes the archive with an embedded Spark, from the home of the job's."""
    own = {"SPARK_HOME": str(home_of(environ))} if is_on_a_cluster(environ) else {}
    return {name: value for name, value in environ.items() if name not in _ELSEWHERE} | own


def _claimed(name: Path) -> IO[bytes] | None:
    """The mark of an attempt by this process, locked until the process that writes, and inherits it, ends.

    None: another attempt goes on, has ended without an archive within a day, or was killed several times; or there is
    no room.

    Raises:
        OSError: the folder can't be written.
    """
    if shutil.disk_usage(name.parent).free < _FREE:
        return None
    attempt = attempt_of(name).open("ab")
    try:
        fcntl.flock(attempt, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        attempt.close()
        return None
    before = os.fstat(attempt.fileno())
    if before.st_size >= _ENDED:
        if time.time() - before.st_mtime < _NEXT_ATTEMPT:
            attempt.close()
            return None
        attempt.truncate(0)
    attempt.write(b".")
    attempt.flush()
    return attempt


def give_up(name: Path) -> None:
    """Note that an attempt has ended without an archive, so that none is made within a day."""
    with attempt_of(name).open("ab") as attempt:
        attempt.write(b"." * _ENDED)


def attempt_of(name: Path) -> Path:
    """The mark of an attempt to write the archive of this name."""
    return name.with_suffix(".attempt")


def put(staged: Path, name: Path) -> Path:
    """Move a complete archive, of the same file system, to its path; remove broken ones and those that nobody uses."""
    with staged.open("rb") as written:
        os.fsync(written.fileno())
    archive = _place(name, staged.stat().st_size)
    staged.replace(archive)  # at once: a job may be starting
    attempt_of(name).unlink(missing_ok=True)
    for other in name.parent.glob("classes-*.jsa"):
        with suppress(OSError):
            is_broken = other != archive and other.name.startswith(name.name)
            if is_broken or time.time() - other.stat().st_mtime > _UNUSED:
                other.unlink()
    return archive
