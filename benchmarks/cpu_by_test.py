"""CPU seconds of tests, the processes that they start included: a plugin of pytest.

    python -m pytest -p benchmarks.cpu_by_test -n 2 --dist loadgroup tests/unit tests/spark

It prints a table by folder above the closing line. The file that the environment names as `CPU_BY_TEST` gets a line for
each test: CPU seconds, wall seconds, identifier. Processes that have left the tree of the test's own are missed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measuring import tree_cpu_seconds

_CPU: Counter[str] = Counter()
_WALL: Counter[str] = Counter()
_TESTS: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    cpu, began = tree_cpu_seconds(os.getpid()), time.monotonic()
    done = yield
    cpu, wall = tree_cpu_seconds(os.getpid()) - cpu, time.monotonic() - began
    folder = item.path.relative_to(item.config.rootpath).parent.as_posix()
    _CPU[folder] += cpu
    _WALL[folder] += wall
    _TESTS[folder] += 1
    if path := os.environ.get("CPU_BY_TEST"):
        with Path(path).open("a") as out:
            out.write(f"{cpu:.2f}\t{wall:.2f}\t{item.nodeid}\n")
    return done


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist hands its counts to the one that prints them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu_by_test"] = [dict(_CPU), dict(_WALL), dict(_TESTS)]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    counts = getattr(node, "workeroutput", {}).get("cpu_by_test", ({}, {}, {}))
    for total, one in zip((_CPU, _WALL, _TESTS), counts, strict=True):
        total.update(one)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("CPU seconds by folder")
    lines = [(cpu, _WALL[folder], _TESTS[folder], folder) for folder, cpu in _CPU.most_common()]
    lines.append((sum(_CPU.values()), sum(_WALL.values()), sum(_TESTS.values()), "all"))
    terminalreporter.line(f"{'CPU s':>8} {'wall s':>8} {'tests':>6}")
    for cpu, wall, tests, folder in lines:
        terminalreporter.line(f"{cpu:8.1f} {wall:8.1f} {tests:6} {folder}")
