"""The lanes of tests, and which tests must share a process when a lane is spread over several.

`make test` plays the core and a few tests of each other folder; `make test-wide` the rest of what each change must
pass; both are `make test-all`, which CI runs. `make test-deep` plays what takes longest, at night.

A folder of `_CORE` is of the core, every other is wide, and so is a test of the core whose place is many tasks. What
differs is marked where it stands: a test, a case (`pytest.param(…, marks=…)`) or a module (`pytestmark`), with

- `core`: of a folder or place that is wide,
- `wide`: of the core's folders,
- `deep`: costs minutes: installs packages, starts everything that the compose file names, has a metastore, executors or
  a JVM for each run of its own, or draws more of what a change plays a few of,
- `deep_on_many`: costs minutes on Spark, seconds in one task, which the same pipeline drives.

What is left on Spark for each change: every scenario that has a part of Spark's own as it is written, SIGKILL at every
step of a batch, and random histories on both places side by side.

Whatever starts something dear once for many tests, a variant of the scenarios or a module's fixture, is one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

Lane = Literal["core", "wide", "deep"]
_SCATTERED = ("architecture", "commands", "docs", "oracle", "processes", "unit")
"""Folders whose tests stand alone."""


def group_of(item: pytest.Item, root: Path) -> str | None:
    """The group of a test below `root`; null for one that stands alone."""
    folder = item.path.relative_to(root).parts[0]
    if folder in _SCATTERED:
        return None
    name = item.path.stem
    if folder == "e2e":
        return "e2e"
    if name == "test_scenarios":
        played = {
            "test_files_in_another_order_give_the_expected_tables": "shuffled",
            "test_files_in_one_run_give_the_expected_tables": "one_go",
        }
        return f"{_engine(item)} {played.get(_function(item), 'plain')}"
    return f"{_engine(item)} {folder} {name}"


_CORE = ("architecture", "commands", "conformance", "debezium", "docs", "mutation", "one_task", "oracle", "pairs",
         "platforms", "remote", "rules", "scenarios", "tables", "unit")  # fmt: skip
"""Folders that `make test` plays, but for tests of many tasks."""


def lane_of(item: pytest.Item) -> Lane:
    """The lane that markers of the test, its case and its module name, else that of its folder and place."""
    marked = {mark.name for mark in item.iter_markers()}
    many = _params(item).get("engine") == "many"
    if "deep" in marked or (many and "deep_on_many" in marked):
        return "deep"
    if "wide" in marked or "core" in marked:
        return "wide" if "wide" in marked else "core"
    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    return "core" if folder in _CORE and not many else "wide"


def _function(item: pytest.Item) -> str:
    return item.originalname if isinstance(item, pytest.Function) else item.name


def _engine(item: pytest.Item) -> str:
    return str(_params(item).get("engine", "many"))


def _params(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
