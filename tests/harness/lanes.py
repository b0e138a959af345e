"""The lanes of tests, and which tests must share a process when a lane is spread over several.

`make test` plays the core and one lane of each room; `make test-wide` the rest of what each change must pass; both are
`make test-all`, which CI runs. `make test-deep` plays what takes longest, at night.

Whatever starts something dear once for many tests, a variant of the scenarios or a module's fixture, is one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

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
        played = {"test_in_another_order": "shuffled", "test_in_one_go": "one_go"}
        return f"{_engine(item)} {played.get(_function(item), 'plain')}"
    return f"{_engine(item)} {folder} {name}"


_SORTS_BESIDE = ("composite", "bad_rows", "reloads", "partial", "conditions", "everything, files written again")

_LONG_ON_SPARK = {
    "test_completeness": ("test_one_lost_file_of_many_is_named_by_its_hour[1000]",),
    "test_scenarios": ("test_in_another_order", "test_in_one_go"),
    "test_end_to_end": (
        "test_interrupted_run_is_resumed",
        "test_unsent_values_are_kept",
        "test_key_update_moves_the_row",
        "test_redelivered_events_change_nothing",
        "test_source_without_positions_is_ordered_by_time_and_offset",
        "test_file_of_only_tombstones_and_truncates",
        "test_table_starts_with_its_first_row",
        "test_tombstones_in_parquet_are_skipped",
        "test_named_schema_types[spark-json]",
        "test_before_images_are_kept_and_move_rows[spark-json]",
        "test_first_misfit_does_not_decide_the_type[spark-rescue]",
        "test_delete_without_a_row_has_the_key_of_its_record[spark-json]",
        *(
            f"test_zoned_times_finer_than_a_microsecond[spark-{of}]"  # one of each form remains
            for of in ("json-truncate", "json-round", "parquet-truncate", "parquet-quarantine")
        ),
    ),
    "test_wrong_files": (
        "test_positions_of_another_log_format_are_refused",
        "test_change_of_source_type_orders_by_time_first",
        "test_file_of_another_table_stops_only_its_table",
        "test_deletes_without_a_key_are_quarantined",
        "test_unrelated_files_beside_valid_ones",
        "test_unmaskable_texts_are_dropped",
        "test_array_of_events_with_half_a_surrogate_pair",
        "test_lines_that_select_columns_keep_no_text",
        "test_masked_and_excluded_texts_need_no_form",
    ),
    "test_damaged_files": (  # one of each format, one of them compressed
        "test_run_ingests_files_beside_a_damaged_one[spark-parquet gzip]",
        "test_run_ingests_files_beside_a_damaged_one[spark-csv]",
    ),
    "test_ledger_behind": ("test_one_source_behind_stops_no_other",),
    "test_reload_policies": (
        "test_what_the_live_table_has_is_no_news[spark-ignore]",
        "test_what_the_live_table_has_is_no_news[spark-rescue]",
    ),
    "test_hostile_input": ("test_hostile_files_harm_only_their_table",),
    "test_snapshots": (
        "test_change_after_a_snapshot_shows_that_it_is_whole",
        "test_delivered_again_opens_nothing",
        "test_first_snapshot_is_no_reload",
        "test_first_snapshot_that_began_again",
        "test_first_transaction_after_a_snapshot_stays",
        "test_incremental_snapshot_removes_nothing",
        "test_interrupted_snapshot_removes_nothing",
        "test_late_change_from_before_a_snapshot_brings_no_row_back",
        "test_release_of_an_interrupted_snapshot",
        "test_rebuild_by_another_sequence_decides_ties",
        "test_reload_follows_what_only_a_person_knows",
        "test_reload_from_a_source_that_was_moved",
        "test_repairs_keep_the_generations",
        "test_reset_that_is_named_after_a_snapshot",
        "test_rows_of_other_partitions_may_follow",
        "test_run_that_died_in_the_middle",
        "test_snapshot_behind_later_changes_removes_nothing",
        "test_snapshot_in_several_batches",
        "test_snapshot_of_one_of_several_connectors_removes_nothing",
        "test_snapshots_that_are_merged",
        "test_soft_deletes_and_reset_logs",
        "test_sweep_limit_holds",
        "test_tables_of_the_source_that_share_one_table",
        "test_unreadable_file_keeps_rows",
    ),
    "test_log_restarts": (
        "test_new_mysql_log_is_refused_until_configured",
        "test_full_refresh_reorders_changes_after_a_log_reset",
        "test_restored_postgresql_is_detected",
        "test_late_file_is_no_new_log",
        "test_changes_captured_again_are_no_new_log",
        "test_log_reset_between_files_of_a_batch_is_refused",
        "test_log_reset_followed_by_a_steady_stream_is_refused",
        "test_log_reset_inside_the_first_file_is_refused",
    ),
    "test_foreign": (
        "test_foreign_commit_is_reported_until_a_full_refresh",
        "test_foreign_commit_without_data_change_is_ignored",
        "test_missing_table_folder_is_reported_and_restored_by_a_refresh",
        "test_foreign_rows_stop_the_table_until_removed",
    ),
    "test_on_spark": (  # adoptions: one of each way of commit is played each time
        "test_table_of_a_merge_job_is_taken_over[vectors-in tasks]",
        "test_table_of_a_merge_job_is_taken_over[change feed-beside]",
        "test_table_of_a_merge_job_is_taken_over[vectors and feed-merged]",
        "test_table_of_a_merge_job_is_taken_over[partitioned-beside]",
        "test_released_table_goes_on_with_the_merge_job[merged]",
        "test_a_copy_is_adopted_and_compared_with_the_table_of_the_merge_job[vectors-in tasks]",
        "test_a_copy_is_adopted_and_compared_with_the_table_of_the_merge_job[change feed-beside]",
        "test_a_copy_is_adopted_and_compared_with_the_table_of_the_merge_job[vectors and feed-merged]",
        "test_a_copy_is_adopted_and_compared_with_the_table_of_the_merge_job[partitioned-beside]",
    ),
    "test_engines_agree": (
        "test_values_converted_to_a_narrower_type",
        "test_existing_table_changes_its_engine",
    ),
    "test_erase": (
        "test_key_stays_erased_after_a_move",
        "test_with_deletion_vectors",
        "test_reused_key_is_loaded_after_erasure",
        "test_log_drops_the_key_after_retention",
    ),
    "test_replay_of_excluded": ("test_column_that_is_excluded_no_more_is_null",),
    "test_shards": ("test_loads_changes_reloads_and_verification", "test_each_source_has_its_own_history"),
    "test_explain": ("test_explain_is_equal_on_both_engines",),
    "test_forgotten_commits": ("test_resume_after_log_cut",),
    "test_histories": ("test_engine_and_oracle_agree",),
    "test_lived_histories": ("test_changes_keep_the_settings_under_which_they_came",),
    "test_batches_beside": (  # each time with everything that a history may have at once
        *(f"test_engine_and_oracle_agree[{sort}]" for sort in _SORTS_BESIDE),
        "test_feed_has_what_changed[False]",
        "test_spark_maintains_the_tables_between[v2]",
    ),
    "test_merged_tables": (
        "test_changes_and_repairs[row tracking]",
        "test_changes_and_repairs[commit times]",
        "test_changes_and_repairs[check]",
        "test_changes_and_repairs[hidden commits]",
        "test_large_batch_that_repeats_changes",
        "test_shallow_clone",
        "test_changes_and_repairs[column mapping]",
    ),
    "test_key_ranges": ("test_feed_of_a_rebuild_has_what_it_changes",),
    "test_bounded_batches": (  # one scenario of rule 5 is played each time, and limits are the plan's, not the engine's
        "test_kill_between_batches_resumes",
        "test_stop_request_ends_batches",
        "test_byte_limit_bounds_batches",
    ),
    "test_tiers": ("test_idle_run_starts_no_spark", "test_small_tier_is_for_any_reader"),
    "test_masks_of_renamed": ("test_a_refresh_holds_back_what_is_stored_under_another_name",),
    "test_layout_histories": ("test_tables_and_change_feeds_match_the_oracle",),
    "test_iceberg": (
        "test_pyiceberg_and_delta_read_the_same_rows",
        "test_soft_deletes_are_read_with_their_mark",
        "test_erased_key_is_absent_and_vacuum_keeps_current_files",
        "test_iceberg_is_enabled_and_disabled_for_a_loaded_table",
        "test_tier_with_deletion_vectors_writes_none_for_iceberg",
        "test_shards_are_read_as_one_table",
    ),
    "test_filtered_reads": ("test_after_maintenance", "test_after_a_full_refresh", "test_after_changes_and_evolution"),
    "test_extreme_values": ("test_every_value_is_found",),
    "test_truncate_crash": ("test_rerun_after_a_kill",),
    "test_partitioned": ("test_every_reader_reads_every_partition",),
    "test_years": ("test_rows_with_such_a_time_in_any_column",),
    "test_streamed": (
        "test_lost_checkpoint_is_harmless",
        "test_failed_files_are_reported_again",
        "test_full_listing_is_daily",
        "test_reload_opens_a_generation",
    ),
    "test_repair_page": ("test_repair",),
    "test_maintenance": ("test_with_deletion_vectors",),
    "test_constraints": ("test_not_null_is_not_lost_when_the_table_is_replaced",),
    "test_decode_in_tasks": ("test_replay_loads_valid_records_and_keeps_invalid_utf8",),
    "test_working_folder": (
        "test_modules_in_the_working_directory_are_not_imported[many]",
        "test_spark_tasks_do_not_import_them",
    ),
}
"""Functions of tests, or single cases of them, by module."""
_LONG_MODULES_ON_SPARK = (
    "test_barred_folder",
    "test_debezium_scenarios",
    "test_flat_scenarios",
    "test_interrupted_refresh",
    "test_lived_histories",
    "test_lost_ledger",
    "test_pairs",
    "test_refused_repairs",
    "test_replay_of_codes",
    "test_rewritten_files",
    "test_unlocked_values",
    "test_views",
)

ON_SPARK = (
    "derive_added_rebuilt",
    "dms_first_load_unreadable",
    "dms_types",
    "expect_policies",
    "history_versions",
    "keyless_reload",
    "quarantine_rows",
    "r01_sequence_not_arrival",
    "r02_net_change_per_key",
    "r03_tombstone",
    "r04_rewritten_change_corrects",
    "r05_bounded_batches",
    "r06_partition_values",
    "r07_keys_swapped",
    "r08_delete_carries_only_the_key",
    "r09_reload",
    "r10_full_refresh",
    "r10_nested_field_in_the_middle",
    "r10_rebuild_masks",
    "r11_becomes_text_as_a_key",
    "r11_types_widened",
    "r12_columns_to_update",
    "r12_masks",
    "r14_changed_keys",
    "r14_history_switched_on",
    "r14_soft_delete_switched_on_and_off",
    "rename_derive_where",
    "truncate_forced",
    "truncate_soft_and_history",
    "where_updates_cross_the_filter",
)
"""Scenarios that Spark plays each time, at least one of each rule: those with steps of its own (merge, history, reload,
schema, tasks). Order, values and texts of all others are decided by functions that both engines call; the engine
`delta_rs` plays all each time, Spark in the deep lane."""

ON_S3 = (
    "r03_tombstone",
    "r04_",
    "r05_",
    "r09_changes_again",
    "r09_files_removed",
    "r09_folder_vanished_after_loading",
    "r09_reload_of_two_files",
    "r10_file_emptied",
    "r10_full_refresh",
    "r10_rebuild_masks",
    "r10_rebuild_refused",
    "history_versions",
    "quarantine_rows",
    "dms_csv_gzip",
    "dms_types",
)
"""Beginnings of names of scenarios that are played in a bucket each time: those of files, their versions and tables."""

_OF_DEBEZIUM_ON_SPARK = ("quarantine_rows", "r02_net_change_per_key", "r05_truncated_file", "r11_types_widened")
"""The dialect hands Spark the rows that it hands delta_rs, which plays all scenarios: a few show that they arrive."""

_LONG = (
    "test_environments",
    # Drawn histories and all alterations of a PostgreSQL: a quarter of an hour, which CI doesn't have.
    "test_altered",
    "test_random_ddl",
    "test_drawn_histories",
    "test_takeovers",
    "test_beside",
    "test_job_continues_tables_that_we_have_loaded",
    *(  # CI's front door installs `demo`; what needs a platform's client is a night's work
        f"test_it_has_what_it_is_for[{extra}]"
        for extra in (
            "[demo]",
            "[airflow]",
            "[emr-serverless]",
            "[glue,iceberg]",
            "[databricks]",
            "[glue]",
            "[openlineage]",
            "[cli] databricks-sdk",
        )
    ),
    "test_hive",
    "test_iceberg_by_duckdb",
    "test_jobs",
    "test_killed_adoptions",
    "test_keyless",
    "test_native",
    "test_the_tutorial_s_model_is_built_by_dbt",
    "test_capture_is_resumed_after_each_write",
    "test_replica_equals_the_source_under_writers",
    "test_lost_log_stops_each_table_until_it_is_loaded_again",
    "test_crash_of_the_server_is_no_loss",
    "test_load_that_was_broken_off_begins_anew_where_the_log_was_lost",
    "test_table_that_was_made_again_is_named",
    "test_slot_of_another_program_is_left_alone",
    "test_publication_without_the_table_is_named_while_it_lasts",
    "test_rows_arrive_and_no_end_loses_any",
    "test_each_table_of_the_publication_gets_its_files",
    "test_columns_that_come_and_types_arrive",
    "test_user_with_the_least_rights",
    "test_both_drivers_of_a_connection",
    "test_a_run_longer_than_the_freshness_sends_an_alert_while_it_runs",
    "test_files_of_a_lost_process_are_never_named_and_go_later",
    "test_killed_task_is_retried_once",
    "test_load_is_resumed_after_each_write[after-True]",
    "test_maintenance_histories",
    "test_spark_maintains_the_tables_between",
    *(
        f"{name}[{seed}]"
        for seed in (1, 2, 3)
        for name in (
            "test_load_under_writers_equals_the_source",
            "test_random_repairs_under_a_writer_end_in_the_source",
            "test_second_load_under_writers_equals_the_source",
        )
    ),
)
"""Modules, functions and single cases that install packages, start everything that the compose file names, have a Hive
metastore, executors or a JVM for each run of their own; and all seeds but the first."""


_CORE = ("architecture", "commands", "conformance", "debezium", "delta_rs", "mutation", "oracle", "pairs", "platforms",
         "remote", "rules", "scenarios", "tables", "unit")  # fmt: skip
"""Folders that `make test` plays, but for modules of `_WIDE` and for tests on Spark."""
_WIDE = (
    "test_completeness",
    "test_continuous",
    "test_continuous_command",
    "test_cut_histories",
    "test_disk_full",
    "test_end_to_end",
    "test_erase_histories",
    "test_erase_moved",
    "test_flat_scenarios",
    "test_growth",
    "test_in_process_shards",
    "test_lanes",
    "test_maintenance",
    "test_move",
    "test_on_s3",
    "test_random_sources",
    "test_shards_changed",
    "test_snapshot_histories",
    "test_spread_local",
    "test_truncates",
    "test_unread_histories",
    "test_vectors",
    "test_wide_tables",
)
"""Modules of these folders that `make test-wide` plays."""
_WIDE_FUNCTIONS = (
    "test_in_another_order",
    "test_in_one_go",
    "test_repair",
    "test_without_a_room_all_else_works",
    "test_without_a_room_of_commands_the_others_work",
)
"""The same of functions."""
_ROOMS = (
    "adopt/test_adopt.py::test_table_is_adopted_in_place_and_goes_on",
    "adopt/test_adopt_page.py",
    "airflow/test_dags.py",
    "capture/test_publication.py",
    "catalogs/test_glue.py",
    "databases/test_initial_load.py::test_ranges_of_any_key_hold_each_row_once",
    "docs/",
    "eject/test_eject_command.py",
    "kafka/test_topics.py::test_replica_equals_the_source[1-1]",
    "readers/test_iceberg.py::test_shards_are_read_as_one_table[delta_rs]",
    "spark/test_by_tasks.py",
    "s3/test_commits_on_s3.py::test_conflicting_commit_overwrites_nothing",
    "s3/test_requests.py",
)
"""What `make test` plays of the other folders, at least one test of a room: beginnings of paths below `tests/`."""
_ROOMS_NOT = ("docs/test_site.py", "airflow/test_dags.py::test_a04")
_ON_SPARK_AT_LEAST = (
    "history_versions",
    "quarantine_rows",
    "r02_net_change_per_key",
    "r04_rewritten_change_corrects",
    "r07_keys_swapped",
    "r09_reload",
    "r10_full_refresh",
    "r11_types_widened",
    "r12_columns_to_update",
    "truncate_forced",
    "where_updates_cross_the_filter",
)
"""Scenarios that `make test` plays on Spark."""


def is_wide(item: pytest.Item) -> bool:
    """Whether `make test` leaves the test to `make test-wide`."""
    path = item.path.relative_to(item.config.rootpath / "tests").as_posix()
    folder, name = path.split("/")[0], f"{path}::{item.name}"
    if folder not in _CORE:
        return name.startswith(_ROOMS_NOT) or not name.startswith(_ROOMS)
    if _params(item).get("engine") == "spark":
        written = folder == "scenarios" and _function(item) == "test_as_written"
        return not (written and str(_params(item).get("scenario")) in _ON_SPARK_AT_LEAST)
    return item.path.stem in _WIDE or _function(item) in _WIDE_FUNCTIONS


def is_deep(item: pytest.Item) -> bool:
    """Costs minutes on Spark, seconds on the engine that the same pipeline drives.

    What is left of it each time: every scenario that has a part of Spark's own as it is written, SIGKILL at every step
    of a batch, and random histories on both engines side by side.
    """
    name = item.path.stem
    if {name, _function(item), item.name}.intersection(_LONG):
        return True
    if name == "test_scenarios_on_s3":
        return not str(_params(item).get("scenario")).startswith(ON_S3)
    named = {_function(item), item.name} & set(_LONG_ON_SPARK.get(name, ()))
    long = bool(named) or name in _LONG_MODULES_ON_SPARK or _is_unlisted(item)
    return _engine(item) == "spark" and long


def _is_unlisted(item: pytest.Item) -> bool:
    scenario = str(_params(item).get("scenario"))
    if item.path.stem == "test_debezium_scenarios":
        return "scenario" in _params(item) and scenario not in _OF_DEBEZIUM_ON_SPARK
    return item.path.stem == "test_scenarios" and scenario not in ON_SPARK


def _function(item: pytest.Item) -> str:
    return item.originalname if isinstance(item, pytest.Function) else item.name


def _engine(item: pytest.Item) -> str:
    return str(_params(item).get("engine", "spark"))


def _params(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
