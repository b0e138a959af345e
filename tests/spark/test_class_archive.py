"""The archive of Java classes: found for its Java and JARs, mapped by Spark, and written after the first job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs import program
from spark_jobs.batch.runtime import LazySpark
from spark_jobs.spark import class_archive, jars, session
from spark_jobs.spark.class_archive import archive_of, attempt_of, is_possible, java_options, name_of, put, write_later
from spark_jobs.spark.python_daemon import without_archives
from spark_jobs.spark.session import SessionSettings, class_path_of

_START = """
from spark_jobs.spark.session import SessionSettings, open_session
print(open_session(SessionSettings(memory="1g", brief=True)).range(3).count())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without archives."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("GDDL_JARS", str(folder))
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Commands of the processes that were to write an archive, instead of these processes, which never end."""
    commands: list[tuple[str, ...]] = []

    def start(command: tuple[str, ...], *, pass_fds: list[int], **_: object) -> None:
        commands.append(command)
        os.dup(pass_fds[0])

    monkeypatch.setattr(subprocess, "Popen", start)
    return commands


def test_another_java_or_other_jars_have_another_archive(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch(mode=0o755)
    ours = name_of("/delta.jar", os.environ)
    assert ours == name_of("/delta.jar", os.environ)
    assert ours.parent == jars.cache_folder()
    others = [
        name_of("/other.jar", os.environ),
        name_of("/delta.jar", {"JAVA_HOME": str(tmp_path)}),
        name_of("/delta.jar", {**os.environ, "SPARK_HOME": str(tmp_path)}),
    ]
    assert len({ours, *others}) == 4
    assert java_options("/no/such.jar", {}, os.environ) == ""


def test_the_first_job_has_it_written_and_the_second_at_once_does_not(
    cache: Path, started: list[tuple[str, ...]]
) -> None:
    assert write_later("/delta.jar", {}, s3a=True)
    assert not write_later("/delta.jar", {}, s3a=True)
    assert [command[-2:] for command in started] == [("--in-background", "--s3a")]
    assert [path.suffix for path in cache.glob("classes-*")] == [".attempt"]


def test_an_attempt_that_left_no_archive_is_repeated_a_day_later(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    assert write_later("/delta.jar", {}, s3a=False)
    name = name_of("/delta.jar", {})
    attempt = attempt_of(name)
    class_archive.give_up(name)
    for hours, repeated in ((23, False), (25, True), (0, False)):
        if hours:
            os.utime(attempt, (time.time() - hours * 3600,) * 2)
        assert write_later("/delta.jar", {}, s3a=False) is repeated
        if repeated:
            class_archive.give_up(name)
    assert len(started) == 2


def test_an_attempt_that_is_killed_is_repeated_at_once_and_not_for_ever(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its process lives there is no other."""
    writing: list[subprocess.Popen[bytes]] = []
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(class_archive, "module_command", lambda *_: sleeping)
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **more: writing.append(popen(*given, **more)))
    for _ in range(3):
        assert write_later("/delta.jar", {}, s3a=False)
        assert not write_later("/delta.jar", {}, s3a=False), "it goes on"
        writing[-1].kill()
        writing[-1].wait()
    assert not write_later("/delta.jar", {}, s3a=False), "something kills them all"
    assert [path.suffix for path in cache.glob("classes-*")] == [".attempt"]


def test_nothing_is_started_where_no_archive_can_be(
    cache: Path, started: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"/delta.jar{os.pathsep}{tmp_path}"
    refused = [write_later("", {}, s3a=False), write_later(folder, {}, s3a=False)]
    refused.append(write_later("/delta.jar", {"SPARK_CONF_DIR": str(tmp_path)}, s3a=False))
    archive = archive_in(cache, "/delta.jar", {})
    refused.append(write_later("/delta.jar", {}, s3a=False))
    archive.unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1024**2))
    refused.append(write_later("/delta.jar", {}, s3a=False))
    monkeypatch.setenv("GDDL_JARS", "/proc/no-such-cache")
    refused.append(write_later("/delta.jar", {}, s3a=False))
    assert refused == [False] * 6
    assert (started, list(cache.glob("classes-*"))) == ([], [])


def test_a_cache_that_is_read_only_gets_no_archive(
    cache: Path, started: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may write everywhere
    assert not write_later("/delta.jar", {}, s3a=False)
    assert (started, list(cache.glob("classes-*"))) == ([], [])


def archive_in(cache: Path, class_path: str, environ: Mapping[str, str], content: bytes = b"classes") -> Path:
    """An archive of a class path with such a content, put where Java finds it."""
    staged = cache / "staged"
    staged.write_bytes(content)
    return put(staged, name_of(class_path, environ))


def test_a_new_archive_takes_the_place_of_broken_and_unused_ones(cache: Path) -> None:
    name = name_of("/delta.jar", {})
    old, used, broken = cache / "classes-old-0.jsa", cache / "classes-used-0.jsa", cache / f"{name.name}-9.jsa"
    for path, days in ((old, 31), (used, 29), (broken, 0), (attempt_of(name), 0)):
        path.touch()
        os.utime(path, (time.time() - days * 86400,) * 2)
    assert archive_of("/delta.jar", {}) is None
    archive = archive_in(cache, "/delta.jar", {})
    assert sorted(cache.glob("classes-*")) == sorted([archive, used])
    assert archive_of("/delta.jar", {}) == archive


def test_the_archive_that_is_used_is_not_an_unused_one(cache: Path) -> None:
    archive = archive_in(cache, "/delta.jar", os.environ)
    os.utime(archive, (0, 0))
    assert f"-XX:SharedArchiveFile={archive}" in java_options("/delta.jar", {}, os.environ)
    assert time.time() - archive.stat().st_mtime < 60


def test_an_archive_that_may_not_be_read_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive_in(cache, "/delta.jar", os.environ)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    assert java_options("/delta.jar", {}, os.environ) == ""


def test_the_log_store_of_s3_is_in_a_folder_once_and_then_in_a_jar(cache: Path) -> None:
    """Java takes no archive where a folder is on the class path. tests/s3 commits by it."""
    nothing: Any = None
    (folder,) = session._log_store(SessionSettings(s3=True))
    assert not is_possible(folder, {})
    compiled = Path(folder, "gddl/ConditionalLogStore.class")
    compiled.parent.mkdir()
    compiled.write_bytes(b"code")
    session.compile_into(Path(folder), nothing)
    (jar,) = session._log_store(SessionSettings(s3=True))
    assert is_possible(jar, {})
    with zipfile.ZipFile(jar) as content:
        assert {name: content.read(name) for name in content.namelist()} == {"gddl/ConditionalLogStore.class": b"code"}
    shutil.rmtree(folder)
    session.compile_into(Path(folder), nothing)
    assert not Path(folder).exists(), "compiled once"
    assert session._log_store(SessionSettings()) == []


def test_workers_import_the_installed_pyspark() -> None:
    path = ["/spark/python/lib/pyspark.zip", "/spark/jars/spark-core.jar", "/own/code.zip", "/sparkle/a.zip", "/lib"]
    assert without_archives(path, "/spark/") == ["/own/code.zip", "/sparkle/a.zip", "/lib"]


def spark_errors(**environment: str) -> str:
    """What a job's Spark prints on standard error."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _START],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.stdout == "3\n"
    return done.stderr


def test_spark_maps_the_archive(tmp_path: Path) -> None:
    class_path = class_path_of(SessionSettings(), tmp_path)
    if archive_of(class_path, os.environ) is None:
        pytest.skip("no archive (make .venv/.classes)")
    assert is_possible(class_path, os.environ)
    log = tmp_path / "classes.log"
    assert "cds" not in spark_errors(JDK_JAVA_OPTIONS=f"-Xlog:class+load:file={log}")
    loaded = log.read_text()
    assert "org.apache.spark.sql.classic.SparkSession source: shared objects file (top)" in loaded
    assert loaded.count("shared objects file (top)") > 5_000


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def test_java_starts_without_an_archive_that_does_not_fit(cache: Path) -> None:
    """Java itself, with the options that Spark passes on to it."""
    archive = archive_in(cache, "/delta.jar", os.environ, b"of another Java")
    options = java_options("/delta.jar", {}, os.environ).split()
    assert f"-XX:SharedArchiveFile={archive}" in options
    command = [java(), *options, "-cp", "/delta.jar", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stderr, "cds" in done.stdout) == ("", False)
    strict = [*command[:2], "-Xshare:on", "--version"]
    refused = subprocess.run(strict, check=False, capture_output=True, text=True)
    assert refused.returncode != 0, "the file is no archive"


def test_java_does_not_get_half_an_archive(cache: Path) -> None:
    """Java aborts when a part of its own archive is missing."""
    staged = cache / "staged"
    written = [java(), f"-XX:ArchiveClassesAtExit={staged}", "-cp", "/delta.jar", "--list-modules"]
    subprocess.run(written, check=True, capture_output=True)
    archive = put(staged, name_of("/delta.jar", os.environ))
    assert archive_of("/delta.jar", os.environ) == archive
    archive.chmod(0o600)
    os.truncate(archive, archive.stat().st_size // 2)
    assert java_options("/delta.jar", {}, os.environ) == ""


@pytest.mark.parametrize(
    ("scratch", "ships", "written"), [(None, True, []), ("/scratch", False, []), ("/scratch", True, ["/delta.jar"])]
)
def test_only_a_job_that_started_spark_with_jars_of_the_cache_leaves_an_archive(
    scratch: str | None, ships: bool, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("spark_jobs.spark.session.class_path_of", lambda *_: "/delta.jar")
    monkeypatch.setattr(class_archive, "write_later", lambda class_path, *_, **__: seen.append(class_path))
    spark = LazySpark(SessionSettings(ship_delta=ships), _scratch=Path(scratch) if scratch else None)
    program._leave_class_archive(spark)
    assert seen == written


def test_the_end_of_a_job_kills_its_java_without_a_word(tmp_path: Path) -> None:
    """Its temporary files are removed, and its Python workers end."""
    script = tmp_path / "job.py"
    script.write_text(_STARTED_AND_STOPPED)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", script], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == "3 False\n"
    assert "Traceback" not in done.stderr, done.stderr
    assert not list(tmp_path.glob("gddl-scratch-*"))


_STARTED_AND_STOPPED = """
from pathlib import Path
from spark_jobs.batch.runtime import LazySpark
from spark_jobs.spark.session import SessionSettings
from spark_jobs.spark.tasks import run_in_tasks

def pids(part):
    import os
    yield str(os.getppid()).encode()

spark = LazySpark(SessionSettings(memory="1g", brief=True))
rows = run_in_tasks(spark.for_table(), pids, range(3))
java = spark.for_table().sparkContext._gateway.proc
spark.stop()
import time
daemon = Path("/proc", rows[0].decode())
for _ in range(100):
    if not daemon.exists():
        break
    time.sleep(0.1)
print(len(rows), java.returncode is None or daemon.exists())
"""
