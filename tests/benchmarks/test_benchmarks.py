"""Every benchmark at its smallest scale, in the environment that its page names, from another folder.

The package is installed there, not editable: a program that looks for modules in the repository measures nothing.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.measuring import print_figures
from tests.packages.user_environments import ROOT, Combination, Environment, wheel

BENCHMARKS = ROOT / "benchmarks"
QUICK = ("modules", "way_of_a_batch")
"""Measured each time, the others by `make test-deep`."""
SMALLEST = {
    "airflow_hour": "--tables 4 --minutes 2 --every 1",
    "airflow_parse": "--scale 0.001",
    "airflow_run": "--scale 0.01",
    "as_of": "--scale 0.01",
    "capture": "--changes 2000 --rows 1000",
    "catalog_sync": "--tables 2 --rounds 1",
    "commit_merge": "--tables 2 --rows 10000 --changes 400",
    "expectations": "--scale 0.002 --rounds 1",
    "growth": "--rows 1000000 --changes 20000 --scale 0.01",
    "iceberg_v3": "--rows 2000 --changes 400",
    "imports": "",
    "initial_load": "--rows 100000 --chunk-rows 50000",
    "known_files": "--files 100",
    "landing_polls": "--scale 0.001",
    "large_file": "--gib 0.05 --kills 1",
    "large_merge": "--scale 0.001",
    "layouts": "--rows 10000 --batches 1",
    "many_runs": "--runs 50",
    "memory_bounds": "--scale 0.001",
    "modules": "",
    "onboard_500": "--scale 0.004",
    "peers": (
        "--scale 0.001 --work plain --tools many_tasks one_task one_task_vectors merge_plain merge_tuned deltalake"
    ),
    "scale_model": "--sizes 10 20 --check 15",
    "small_tables": "--tables 20 --idle 0 --no-spark",
    "spark_start": "--scale 0.2",
    "status_page": "--scale 0.002",
    "streaming": "--scale 0.001 --tables 1 --kills 1",
    "topics": "--scale 0.01 --tables 1",
    "way_of_a_batch": "",
    "whole_tables": "--scale 0.001",
}
OF_DEVELOPERS = ("topics",)
"""Need the extra `dev`: a broker and Kafka Connect."""
OTHERS = ("airflow_stand_in", "airflow_worker_load", "comparison", "cpu_by_test")
"""Programs that a benchmark or pytest starts, and one that starts benchmarks."""


def programs() -> set[str]:
    """Modules that are programs: they can be started, or have arguments."""
    texts = {path.stem: path.read_text() for path in BENCHMARKS.glob("*.py")}
    return {name for name, text in texts.items() if "ArgumentParser(" in text} - set(OTHERS)


@pytest.fixture(scope="module")
def environments() -> Iterator[dict[str, Environment]]:
    """Those that were made, by extra. Servers in them run as another user, who may not read pytest's folders."""
    made: dict[str, Environment] = {}
    yield made
    for environment in made.values():
        shutil.rmtree(environment.root)


def environment_of(extra: str, known: dict[str, Environment]) -> Environment:
    if extra not in known:
        root = Path(tempfile.mkdtemp(prefix=f"gddl-{extra}-"))
        root.chmod(0o755)
        known[extra] = Environment(root)
        known[extra].install(wheel(root), Combination((extra,)))
    return known[extra]


def test_every_program_is_run() -> None:
    assert set(SMALLEST) == programs()


def test_pages_name_the_environment() -> None:
    page = (BENCHMARKS / "README.md").read_text()
    assert "pip install '.[bench]'" in page
    assert re.search(r"`topics.py`.*?Needs `'\.\[dev\]'`", page, re.DOTALL)


def test_every_program_names_what_it_measures() -> None:
    """The last line comes from `print_figures`."""
    assert [name for name in programs() if "print_figures(" not in _text(name)] == []
    with pytest.raises(TypeError):
        print_figures({"calls": 1})  # type: ignore[call-arg] # is the test


def _text(name: str) -> str:
    return (BENCHMARKS / f"{name}.py").read_text()


@pytest.mark.parametrize(
    ("found", "measured", "empty"),
    [
        ({"calls": 3, "deep": [{"seconds": 0.1}]}, ("calls", "seconds"), ""),
        ({"calls": 0, "seconds": 1.0}, ("calls", "seconds"), "calls"),
        ({"calls": None}, ("calls",), "calls"),
        ({"calls": float("nan")}, ("calls",), "calls"),
        ({"a": [{"calls": 1}, {"calls": 0}]}, ("calls",), "calls"),
        ({"other": 1}, ("calls",), "calls"),
    ],
)
def test_figures_of_nothing_are_an_error(
    found: dict[str, object], measured: tuple[str, ...], empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not empty:
        print_figures(found, *measured)
        assert json.loads(capsys.readouterr().out) == found
        return
    with pytest.raises(SystemExit, match=f"nothing was measured: {empty} of"):
        print_figures(found, *measured)
    assert capsys.readouterr().out == ""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in sorted(SMALLEST)]
)
def test_it_measures(name: str, environments: dict[str, Environment], tmp_path: Path) -> None:
    environment = environment_of("dev" if name in OF_DEVELOPERS else "bench", environments)
    if name == "spark_start":
        assert environment.run("-m", "spark_jobs.spark.write_class_archive", cwd=tmp_path).returncode == 0
    arguments = shlex.split(SMALLEST[name])
    done = environment.run(BENCHMARKS / f"{name}.py", *arguments, cwd=tmp_path, timeout=1100)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])
