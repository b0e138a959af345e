"""The archive of Java classes: found for its Java and JARs, and mapped by the Spark of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.spark.jars import archive_of, java_options
from spark_jobs.spark.session import SessionSettings, class_path_of

_START = """
from spark_jobs.spark.session import SessionSettings, open_session
print(open_session(SessionSettings(memory="1g", brief=True)).range(3).count())
"""


def test_another_java_or_other_jars_have_another_archive(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch(mode=0o755)
    ours = archive_of("/delta.jar", os.environ)
    assert ours == archive_of("/delta.jar", os.environ)
    assert (
        len({ours, archive_of("/other.jar", os.environ), archive_of("/delta.jar", {"JAVA_HOME": str(tmp_path)})}) == 3
    )
    assert java_options("/no/such.jar", {}, os.environ) == ""


def started(**environment: str) -> str:
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
    if not archive_of(class_path_of(SessionSettings(), tmp_path), os.environ).exists():
        pytest.skip("no archive (make .venv/.classes)")
    log = tmp_path / "classes.log"
    assert "cds" not in started(JDK_JAVA_OPTIONS=f"-Xlog:class+load:file={log}")
    loaded = log.read_text()
    assert "org.apache.spark.sql.classic.SparkSession source: shared objects file (top)" in loaded
    assert loaded.count("shared objects file (top)") > 5_000


def test_java_starts_without_an_archive_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java itself, with the options that Spark passes on to it."""
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    class_path = class_path_of(SessionSettings(), tmp_path)
    archive = archive_of(class_path, os.environ)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"of another Java")
    options = java_options(class_path, {}, os.environ).split()
    assert f"-XX:SharedArchiveFile={archive}" in options
    home = os.environ.get("JAVA_HOME")
    command = [f"{home}/bin/java" if home else "java", *options, "-cp", class_path, "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stderr, "cds" in done.stdout) == ("", False)
    strict = [*command[:2], "-Xshare:on", "--version"]
    refused = subprocess.run(strict, check=False, capture_output=True, text=True)
    assert refused.returncode != 0, "the file is no archive"
