"""Which tests must share a process when the tests are spread over several (`make test` runs one on each core).

Whatever starts something dear once for many tests, a variant of the scenarios or a module's fixture, is one group.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    "test_end_to_end": (
        "test_a_run_that_broke_off_is_gone_on_with",
        "test_an_updated_key_moves_the_row",
        "test_events_that_were_sent_again_change_nothing",
        "test_a_source_without_places_is_ordered_by_time_and_then_offset",
        "test_a_file_of_nothing_but_tombstones_and_truncates",
    ),
    "test_wrong_files": (
        "test_places_in_another_kind_of_log_are_refused",
        "test_another_kind_of_source_goes_on_with_times_first",
        "test_a_file_of_another_table_stops_this_one_alone",
        "test_deletes_that_tell_no_key_go_to_the_quarantine",
    ),
    "test_simulated": ("test_the_replica_is_the_truth",),
    "test_log_restarts": (
        "test_a_full_refresh_puts_changes_in_order_that_came_before_the_row_said_so",
        "test_a_restored_postgresql_is_noticed",
        "test_a_file_that_came_late_is_no_new_log",
    ),
    "test_lost_ledger": (
        "test_a_full_refresh_without_the_ledger_knows_a_reload_from_the_change_table",
        "test_a_new_lake_over_a_folder_that_was_reloaded_days_later",
        "test_a_first_load_that_was_interrupted_keeps_to_what_it_has_inferred",
        "test_changes_made_during_the_load_win_over_it",
        "test_files_in_their_usual_order_need_no_inference",
        "test_where_times_can_not_tell_nothing_is_written_until_the_row_says_it",
    ),
    "test_foreign": (
        "test_what_changes_no_row_is_not_named",
        "test_a_folder_that_is_gone_is_named_and_comes_back_by_a_refresh",
    ),
    "test_engines_agree": (
        "test_values_that_must_fit_a_narrower_type",
        "test_a_living_table_changes_its_engine",
    ),
    "test_erase": (
        "test_somebody_who_is_given_the_key_later_lives",
        "test_the_log_forgets_it_after_the_retention",
    ),
    "test_forgotten_commits": ("test_maintenance_cut_the_log",),
    "test_histories": ("test_engine_and_oracle_agree",),
    "test_bounded_batches": ("test_killed_in_the_middle_of_many_batches",),
    "test_tiers": ("test_nothing_new_starts_no_spark",),
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
_LONG_MODULES_ON_SPARK = ("test_dead_refresh", "test_debezium_scenarios")

SHARED_BY_ENGINES = (
    "dms_csv",
    "dms_date_folders_by_time",
    "dms_date_folders_other",
    "dms_date_folders_slash",
    "dms_other_files",
    "dms_parallel_load",
    "r01_default_choice",
    "r02_redelivery_is_no_tie",
    "r05_load_readable_only_later",
    "r05_truncated_reload",
    "r09_files_removed",
    "r09_folder_vanished",
    "r09_new_name_continues_the_load",
    "r09_reload_of_two_files",
    "r11_dropped_column_refused",
    "r11_new_column_refused",
    "r14_changed_sequence",
)
"""Scenarios of names, listings, plans and refusals: what is proved there is the same code for every engine."""

_OF_DEBEZIUM_ON_SPARK = ("quarantine_rows", "r02_net_change_per_key", "r05_truncated_file", "r11_types_widened")
"""The dialect hands Spark the rows that it hands delta_rs, which plays all scenarios: a few show that they arrive."""

_LONG = ("test_environments", "test_native")
"""Modules that install environments, or start everything that the compose file names."""


def is_deep(item: pytest.Item) -> bool:
    """Costs minutes on Spark, seconds on the engine that the same pipeline drives.

    What is left of it each time: every scenario that has a part of Spark's own as it is written, SIGKILL at every step
    of a batch, and random histories on both engines side by side.
    """
    name = item.path.stem
    if name in _LONG:
        return True
    long = name in _LONG_MODULES_ON_SPARK or _function(item) in _LONG_ON_SPARK.get(name, ()) or _is_shared(item)
    return _engine(item) == "spark" and long


def _is_shared(item: pytest.Item) -> bool:
    scenario = str(_params(item).get("scenario"))
    if item.path.stem == "test_debezium_scenarios":
        return "scenario" in _params(item) and scenario not in _OF_DEBEZIUM_ON_SPARK
    return item.path.stem == "test_scenarios" and scenario in SHARED_BY_ENGINES


def _function(item: pytest.Item) -> str:
    return item.originalname if isinstance(item, pytest.Function) else item.name


def _engine(item: pytest.Item) -> str:
    return str(_params(item).get("engine", "spark"))


def _params(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
