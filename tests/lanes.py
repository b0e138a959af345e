"""Which tests must share a process when the tests are spread over several (`make test` runs one on each core).

Whatever starts something dear once for many tests, a variant of the scenarios or a module's fixture, is one group.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_SCATTERED = ("architecture", "unit", "oracle")
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
        played = {"test_in_another_order": "shuffled", "test_in_one_go": "one_go"}
        return f"{_engine(item)} {played.get(_function(item), 'plain')}"
    return f"{_engine(item)} {folder} {name}"


_LONG_ON_SPARK = {
    "test_scenarios": ("test_in_another_order", "test_in_one_go"),
    "test_histories": ("test_engine_and_oracle_agree",),
    "test_bounded_batches": ("test_killed_in_the_middle_of_many_batches",),
    "test_tiers": (
        "test_a_small_table_is_one_that_any_reader_takes",
        "test_nothing_new_starts_no_spark",
    ),
    "test_jobs": (  # of a cluster
        "test_two_tasks_never_work_on_one_table",
        "test_a_job_stopped_and_a_driver_killed_are_gone_on_with",
        "test_a_cluster_that_is_too_small_is_waited_for_and_told_of",
    ),
    "test_streamed": (
        "test_a_lost_checkpoint_costs_nothing",
        "test_what_a_run_could_not_take_is_told_of_again",
        "test_once_a_day_all_is_listed",
        "test_a_reload_opens_a_generation_as_ever",
    ),
}
_LONG_MODULES_ON_SPARK = ("test_dead_refresh",)


_LONG = ("test_environments", "test_native")
"""Modules that install environments, or start everything that the compose file names."""


def is_deep(item: pytest.Item) -> bool:
    """Costs minutes on Spark, seconds on the engine that the same pipeline drives.

    What is left of it each time: every scenario as it is written, SIGKILL at every step of a batch, and random
    histories on both engines side by side.
    """
    name = item.path.stem
    if name in _LONG:
        return True
    long = name in _LONG_MODULES_ON_SPARK or _function(item) in _LONG_ON_SPARK.get(name, ())
    return _engine(item) == "spark" and long


def _function(item: pytest.Item) -> str:
    return item.originalname if isinstance(item, pytest.Function) else item.name


def _engine(item: pytest.Item) -> str:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return str(params.get("engine", "spark"))
