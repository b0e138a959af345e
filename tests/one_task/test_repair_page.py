"""Each repair that the pages promise, done as they say on the situation they name: here, or in a test named here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Rebuild, Reload, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.totals import TableOutcome
from tests.conftest import LocalPort
from tests.harness.asked import with_asked
from tests.harness.lake import Lake
from tests.harness.landing import write

ROOT = Path(__file__).parents[2]
SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
VERBS = {
    "gddl rebuild --table T": JobOptions(action=Rebuild()),
    "gddl reload --from-files --table T": JobOptions(action=Reload()),
    "gddl reload --from-files --since 2026-01-30 --until 2026-02-01 --table T": JobOptions(
        action=Reload(landed_since="2026-01-30", landed_until="2026-02-01")
    ),
}
OF_TIME = next(command for command in VERBS if "--since" in command)


def promised() -> dict[str, str]:
    """Situation to command, of the table on the page."""
    page = (ROOT / "docs" / "repair.md").read_text(encoding="utf-8")
    part = page.partition("## Rebuild, reload or resync")[2]
    rows = re.findall(r"^\| (.+?) \| (.*?)`(gddl [^`]+)` \|$", part, re.MULTILINE)
    return {f"{what}: {before}".rstrip(": "): command for what, before, command in rows}


def filled(lake: Lake) -> Lake:
    lake.load(SPEC, 4)
    lake.change(SPEC, 1, [("U", 0, "new"), ("D", 3, None)])
    lake.done(SPEC)
    return lake


def landing(lake: Lake) -> Path:
    return Path(lake.layout(SPEC).landing)


def emptied(lake: Lake) -> None:
    for path in landing(lake).iterdir():
        path.unlink()


def damaged(empty: Lake) -> None:
    lake = filled(empty)
    right = lake.replica(SPEC)
    DeltaTable(lake.layout(SPEC).replica).delete("id = 1")
    verdict = lake.run(SPEC, JobOptions(action=Verify()))
    assert isinstance(verdict, TableOutcome)
    assert verdict.result.error is not None
    assert verdict.result.error.code == "VERIFY_DIFFERENT"
    emptied(lake)
    lake.done(SPEC, VERBS["gddl rebuild --table T"])
    assert lake.replica(SPEC) == right


def changed_row(empty: Lake) -> None:
    lake = filled(empty)
    emptied(lake)
    other = replace(SPEC, mask={"v": "hash"}, partition_by=("id",))
    refused = lake.run(other, JobOptions(full_listing=True))
    assert isinstance(refused, TableOutcome)
    assert refused.result.error is not None
    assert refused.result.error.code in ("MASK_CHANGED", "PARTITION_CHANGED")
    lake.done(other, VERBS["gddl rebuild --table T"])
    assert {len(value) for value in lake.replica(other).values()} == {64}


def truncated(empty: Lake) -> None:
    lake = filled(empty)
    emptied(lake)
    lake.change(SPEC, 9, [("I", 9, "after the truncate")])
    asked = lake.run(SPEC, VERBS["gddl reload --from-files --table T"])
    assert isinstance(asked, TableOutcome)
    assert asked.result.error is not None
    assert asked.result.error.code == "RELOAD_UNCONFIRMED"
    lake.done(SPEC, with_asked(VERBS["gddl reload --from-files --table T"], confirmed=True))
    assert lake.replica(SPEC) == {9: "after the truncate"}


def wrong_types(empty: Lake) -> None:
    lake = filled(empty)
    emptied(lake)
    right = pa.table({"id": pa.array([0, 1], pa.int32()), "v": pa.array([10, 11], pa.int64())})
    write(landing(lake), "LOAD00000001.parquet", right)
    lake.done(SPEC, with_asked(VERBS["gddl reload --from-files --table T"], confirmed=True))
    assert lake.replica(SPEC) == {0: 10, 1: 11}
    assert DeltaTable(lake.layout(SPEC).replica).to_pyarrow_table().schema.field("v").type == pa.int64()


def mended(empty: Lake) -> None:
    """The file of the time is corrected; another one, which a lifecycle rule has removed, keeps what it gave."""
    lake = filled(empty)
    lake.change(SPEC, 2, [("U", 1, "wrong")])
    path = landing(lake) / "20240101-000000002.parquet"
    lake.done(SPEC)
    lake.change(SPEC, 2, [("U", 1, "right")])
    moment = datetime(2026, 1, 31, tzinfo=UTC).timestamp()
    os.utime(path, (moment, moment))
    (landing(lake) / "20240101-000000001.parquet").unlink()
    assert lake.done(SPEC, VERBS[OF_TIME]).files == 1
    assert lake.replica(SPEC) == {0: "new", 1: "right", 2: "load 2"}


PLAYED: dict[str, tuple[str, Callable[[Lake], None]]] = {
    "the replica was damaged": ("gddl rebuild --table T", damaged),
    "`keys`, `sequence_by`, `mask`": ("gddl rebuild --table T", changed_row),
    "the source was truncated": ("gddl reload --from-files --table T", truncated),
    "a file's types or columns were wrong": ("gddl reload --from-files --table T", wrong_types),
    "files of a time were restored": (OF_TIME, mended),
}


def test_every_repair_of_the_page_is_played() -> None:
    found = promised()
    assert len(found) == len(PLAYED)
    for situation, command in found.items():
        (wanted,) = [verb for begin, (verb, _) in PLAYED.items() if situation.startswith(begin)]
        assert command == wanted


@pytest.mark.wide
@pytest.mark.deep_on_many
@pytest.mark.parametrize("situation", PLAYED)
def test_each_repair_of_the_page_leads_to_the_source_again(situation: str, engine: LocalPort, tmp_path: Path) -> None:
    PLAYED[situation][1](Lake(tmp_path, port=engine))


REPAIRS = re.compile(r"gddl (?:rebuild|reload|resync|release sweep|errors replay|errors dismiss)")
REFERENCE = ("cli.md", "codes.md", "design.md", "index.md", "metadata.md", "semantics.md")
"""Pages that describe commands and codes one by one; what semantics.md promises of a situation has words of its own."""
PROMISES = re.compile(
    r"until a rebuild|A rebuild then|a column becomes text|repairs them|a reload brings|release sweep`"
)
SNAPSHOTS, TABLE_SNAPSHOTS = "debezium/test_snapshots.py", "one_task/test_table_snapshots.py"
RESYNC_ROWS, LATE_FILES = "databases/test_resync_rows.py", "scenarios/test_late_files.py"
WITHOUT_KEYS = "one_task/test_loads_without_keys.py"
OF_PAGES = {
    "conformance.md": {
        "--from-files` makes it": f"{LATE_FILES}::test_a_reload_that_comes_after_changes_made_since_is_refused"
    },
    "debezium.md": {
        "lacks more than a third of the rows": f"{SNAPSHOTS}::test_sweep_limit_holds",
        "Where rows that are gone remain": f"{SNAPSHOTS}::test_reload_follows_what_only_a_person_knows",
        "(`LOG_BEGAN_LATE`)": "debezium/test_log_restarts.py::test_full_refresh_reorders_changes_after_a_log_reset",
        "move the files of the old log out": (
            "debezium/test_log_restarts.py::test_a_change_from_the_future_hides_no_reset"
        ),
    },
    "iceberg.md": {
        "files outside of its folder": (
            "readers/test_iceberg_v3_tables.py::test_a_shallow_clone_is_refused_until_a_rebuild"
        ),
    },
    "initial-load.md": {"To read only some rows again": f"{RESYNC_ROWS}::test_missing_wrong_and_surplus_rows"},
    "on-call.md": {
        "Restore the newest copy": "spark/test_ledger_behind.py::test_ledger_behind_its_tables_is_refused",
        "rows and files are in quarantine": "commands/test_cli.py::test_errors_replay_orders_the_chosen_codes",
        "tier), correct it, and `gddl errors replay": "one_task/test_unread_files.py::test_corrected_row_reads_them",
        "as after a truncate": "scenarios/r09_reload_held",
        "`TABLE_DAMAGED` names the first file": (
            "one_task/test_damaged_tables.py::test_damage_is_harmless_or_named_with_its_repair"
        ),
        "The row can be lost": "one_task/test_quarantine_counts.py::test_a_dismissal_ends_the_attention",
        "`SEQUENCE_TIE`": f"{SNAPSHOTS}::test_rebuild_by_another_sequence_decides_ties",
        "shows key, reason, record and file": "spark/test_replay_of_codes.py::test_rows_of_other_codes_are_kept",
        "no landing file is needed": "one_task/test_repairs.py::test_rebuild_repairs_a_replica",
        "`LEDGER_MISSING`": "spark/test_lost_ledger.py::test_refresh_without_ledger_derives_reload_from_change_table",
    },
    "operate.md": {"They are no changes yet": "spark/test_replay_of_codes.py::test_rows_of_other_codes_are_kept"},
    "permissions.md": {
        "write or remove files below the landing folder": (
            "s3/test_permissions_page.py::test_job_without_the_policy_of_landing_files_removes_none"
        ),
    },
    "recipes/dev-and-prod.md": {
        "write into the landing folder. Give developm": (
            "s3/test_permissions_page.py::test_job_without_the_policy_of_landing_files_removes_none"
        ),
        "gddl rebuild": "recipes/test_recipes.py::test_the_recipe_works",
    },
    "recipes/disaster-recovery.md": {
        "gddl reload --from-files": "recipes/test_recipes.py::test_the_recipe_works",
    },
    "repair.md": {
        "differs from its own changes (`VERIFY_DIFFERENT`)": "one_task/test_repair_page.py::damaged",
        "reads no landing file, and": "one_task/test_landing_retention.py::test_a_rebuild_afterwards_is_equal",
        "changes of some rows were lost": f"{RESYNC_ROWS}::test_differences_that_verify_has_found_are_repaired",
        "gddl resync --table shop.orders --key": f"{RESYNC_ROWS}::test_missing_wrong_and_surplus_rows",
        "must equal its source": f"{RESYNC_ROWS}::test_differences_that_verify_has_found_are_repaired",
        "shop.orders --differences": f"{RESYNC_ROWS}::test_differences_that_verify_has_found_are_repaired",
        **{situation: f"one_task/test_repair_page.py::{play.__name__}" for situation, (_, play) in PLAYED.items()},
    },
    "security.md": {"To change the key": "spark/test_masks.py::test_another_key_needs_the_files"},
    "trust.md": {
        "- **Restore**": "docs/test_trust_page.py::test_restored_by_delta_is_said_by_the_next_run",
        "gddl rebuild --table shop.orders": "docs/test_trust_page.py::test_a_harmed_replica_is_found_and_made_again",
        "`gddl resync` of some rows": f"{RESYNC_ROWS}::test_missing_wrong_and_surplus_rows",
    },
    "sources.md": {
        "also into other partitions": "one_task/test_shards.py::test_a_rebuild_into_partitions",
        "`SHARD_REMOVED`": "one_task/test_shards_changed.py::test_a_replay_says_what_is_left_of_a_removed_shard",
    },
    "start.md": {
        "gddl errors replay --table nyc.airports": "readme/test_readme.py::test_the_commands_work",
        "gddl errors dismiss --table nyc.airports": "readme/test_readme.py::test_the_commands_work",
        "gddl rebuild --table shop.planes": "readme/test_readme.py::test_the_commands_work",
        "gddl resync --table T --key": f"{RESYNC_ROWS}::test_missing_wrong_and_surplus_rows",
    },
    "as-of.md": {
        "read again later": "as_of/test_by_time.py::test_rows_that_were_read_from_the_source_again_are_refused",
    },
    "recipes/special-tables.md": {
        "removes the earlier rows": f"{WITHOUT_KEYS}::test_much_smaller_load_is_held_and_equal_to_nothing",
    },
    "tasks/add-a-table.md": {
        "`KEYS_SHARED`": "one_task/test_new_keys.py::test_rows_of_a_full_load_that_share_a_key_are_counted",
    },
    "tasks/adopt.md": {
        "from files loses them": "adopt/test_own_columns.py::test_a_reload_from_files_loses_columns_of_the_other_job",
    },
    "tasks/change-a-key-or-a-type.md": {
        "Until then runs of the table are refused": "scenarios/r14_changed_keys",
        "gddl rebuild --table shop.orders": "scenarios/r10_rebuild_declared_times",
        "Without waiting for a file": "scenarios/r11_rebuild_into_text",
    },
    "tasks/rerun-or-backfill.md": {
        "leave quarantined rows out": "one_task/test_quarantine_counts.py::test_a_dismissal_ends_the_attention",
        "quarantined rows and files after a fix": "spark/test_replay_of_codes.py::test_rows_of_other_codes_are_kept",
        "replica and history from the lake": "one_task/test_repair_page.py::damaged",
        "files of a date range again": "one_task/test_repair_page.py::mended",
        "from the files that are there, and nothing else": "one_task/test_repair_page.py::truncated",
        "some rows, read from the source": f"{RESYNC_ROWS}::test_missing_wrong_and_surplus_rows",
        "`SWEEP_HELD`": "scenarios/r09_reload_held",
    },
    "tutorial.md": {
        "gddl errors replay --table shop.orders": "recipes/test_recipes.py::test_the_tutorial_works",
    },
    "snapshots.md": {
        "a larger share of the keys": f"{TABLE_SNAPSHOTS}::test_a_snapshot_that_lacks_too_much_is_held",
        "from the snapshots that are there": f"{TABLE_SNAPSHOTS}::test_a_snapshot_without_its_neighbour_is_held",
    },
}
"""Page to words of each line that names a repair, and the test that plays it."""


OF_SEMANTICS = {
    "a user releases it (`gddl release sweep`)": "scenarios/r09_reload_held",
    "`gddl release sweep` removes the rows": "scenarios/r09_reload_held",
    "repairs them. A swap over a third key": "scenarios/r07_keys_shifted_repaired",
    "`string`, a column becomes text": "scenarios/r11_rebuild_into_text",
    "a reload brings the older ones": "scenarios/r14_column_included_again",
    "`LEDGER_MISSING`)": "spark/test_lost_ledger.py::test_refresh_without_ledger_derives_reload_from_change_table",
    "A rebuild then reads the files": "spark/test_ledger_behind.py::test_ledger_behind_its_tables_is_refused",
    "`KEYS_SHARED`": "one_task/test_quarantine_counts.py::test_shared_keys_need_attention_until_other_keys",
    "`FOREIGN_COMMIT`": "scenarios/test_foreign.py::test_foreign_commit_is_reported_until_a_full_refresh",
    "in files of its own": "adopt/test_adopt.py::test_another_writer_is_refused_whatever_came_of_its_files",
    "Changed `keys` or `sequence_by`": "scenarios/r14_changed_keys",
    "under which stored values could not have come": "scenarios/r14_column_excluded_later",
    "Changed `partition_by`": "scenarios/r14_partition_changed",
    "`derive`: refused (`DERIVED_CHANGED`)": "scenarios/derive_added_rebuilt",
    "that is the beginning of stored data columns": "scenarios/r14_before_images_later",
    "`LOG_BEGAN_LATE`": "debezium/test_log_restarts.py::test_full_refresh_reorders_changes_after_a_log_reset",
    "Columns that come later have none until a rebuild": "readers/test_filtered_reads.py::test_after_a_full_refresh",
}
"""The same of semantics.md."""


def test_every_repair_of_semantics_is_played() -> None:
    page = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if PROMISES.search(line)]
    assert [line for line in lines if not any(word in line for word in OF_SEMANTICS)] == []
    assert [word for word in OF_SEMANTICS if not any(word in line for line in lines)] == []


def test_every_repair_of_other_pages_is_played() -> None:
    """A new promise names its test here."""
    pages = {path.relative_to(ROOT / "docs").as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
    for name, path in pages.items():
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if REPAIRS.search(line)]
        if name not in REFERENCE and not name.startswith("decisions/"):
            words = OF_PAGES.get(name, {})
            assert [line for line in lines if not any(word in line for word in words)] == [], name
            assert [word for word in words if not any(word in line for line in lines)] == [], name


def test_every_test_that_is_named_is_there() -> None:
    for test in {test for words in (*OF_PAGES.values(), OF_SEMANTICS) for test in words.values()}:
        path, _, function = test.partition("::")
        found = ROOT / "tests" / path
        assert found.exists(), test
        assert found.is_dir() or f"def {function}" in found.read_text(encoding="utf-8"), test
