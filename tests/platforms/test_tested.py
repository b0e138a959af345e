"""The table of what was run where, and what this run adds to it."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pyspark
import pytest

from airflow_gddl.contract import spark_versions as versions
from spark_jobs.spark import jars
from tests.platforms.tested import TESTED, table

PAGE = Path(__file__).parents[2] / "docs" / "platforms" / "tested.md"


def test_the_page_has_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{table()}")
    assert table() in PAGE.read_text(encoding="utf-8"), "copy the table above into docs/platforms/tested.md"


def test_what_rows_name_exists() -> None:
    """Lanes with a Spark of the row's series, targets of make, and files of tests."""
    makefile = (PAGE.parents[2] / "Makefile").read_text(encoding="utf-8")
    lanes = dict(re.findall(r"^PINS_(\S+) := pyspark==(\S+)", makefile, re.MULTILINE))
    for row in TESTED:
        for lane in re.findall(r"\d+\.\d+", (re.search(r"lanes? ([\d., ]+)", row.by) or [""])[0]):
            assert lane in row.spark, row.platform
            assert versions.series(lanes[lane]) == versions.series(lane), row.platform
        for target in re.findall(r"`make ([\w-]+)`", row.by):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for path in re.findall(r"tests/[\w./]+", row.by):
            assert (PAGE.parents[2] / path).exists(), path


def test_the_pair_that_runs_here_is_one_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = jars.delta()
    with capsys.disabled():
        python, hadoop = platform.python_version(), jars.hadoop_version()
        print(f"\nhere: Spark {pyspark.__version__}, {bundle.what}, Hadoop {hadoop}, Python {python}")
    known = versions.DELTA[versions.series(bundle.coordinates[0].rpartition(":")[2])]
    assert versions.series(pyspark.__version__) in known.artifacts
