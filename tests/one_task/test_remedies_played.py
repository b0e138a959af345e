"""The command of a code's remedy, typed as it stands in the message or in docs/codes.md, in the situation of the code:
it ends the code, the table holds what its source has, and goes on.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.codes import REGISTER
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write, write_bytes
from tests.one_task.commands import gddl

pytestmark = pytest.mark.wide

SPEC = spec_of()
COMMAND = re.compile(r"`(gddl [^`]+)`")
Rows = dict[int, str | None]


@dataclass
class Shop:
    """A table, its row and its landing folder; commands run as a user types them."""

    folder: Path
    row: dict[str, str] = field(default_factory=lambda: {"keys": "[id]", "sequence_by": "[seq]"})

    @property
    def lake(self) -> Lake:
        return Lake(self.folder)

    @property
    def landing(self) -> Path:
        return self.lake.landing(SPEC)

    def write_row(self, **fields: str | None) -> None:
        """Fields as YAML; None: without it."""
        self.row = {name: value for name, value in {**self.row, **fields}.items() if value is not None}
        tables = self.folder / "metadata" / "tables"
        tables.mkdir(parents=True, exist_ok=True)
        settings = "landing: ../landing\nlake: ../lake\n"
        (self.folder / "metadata" / "gddl.yaml").write_text(settings)
        row = ", ".join(f"{name}: {value}" for name, value in {"table": "s.t", **self.row}.items())
        (tables / "s.yaml").write_text(f"tables: [{{{row}}}]\n")

    def load(self, rows: int = 4) -> None:
        self.lake.load(SPEC, rows)

    def change(self, number: int, *rows: tuple[str, int, str | None]) -> None:
        self.lake.change(SPEC, number, rows)

    def load_part(self, name: str = "LOAD00000002.parquet") -> None:
        """The rows of the first file of the load in another one."""
        shutil.copyfile(self.landing / "LOAD00000001.parquet", self.landing / name)

    def run(self, *words: str) -> tuple[list[dict[str, Any]], str]:
        return gddl(self.folder, *(words or ("run",)), status=None)

    def listed(self) -> str:
        """The commands that `gddl errors list` shows, in backticks."""
        _, said = gddl(self.folder, "errors", "list", status=None, as_json=False)
        return "\n".join(f"`{one}`" for one in re.findall(r"(?<= )gddl .+", re.sub(r" --metadata \S+", "", said)))

    def state(self) -> dict[str, Any]:
        ((line, *_), _) = self.run("status")
        return line

    def rows(self) -> Rows:
        spec = replace(SPEC, table=self.row.get("target", SPEC.table))
        value = "w" if "rename" in self.row else "v"
        return {row["id"]: row[value] for row in self.lake.rows(self.lake.layout(spec).replica)}


@dataclass(frozen=True, kw_only=True)
class Play:
    """A situation, and what the remedy of its code says.

    Attributes:
        arrange: brings the table into the situation; the next run says the code.
        command: how the command begins that ends it, among those that the message or the page names; empty: none is
            named, a run follows what was changed by hand.
        by_hand: what the remedy says to change before.
        asked: the command that says the code.
        rows: of the table afterwards.
        then: codes that the table needs attention for afterwards, which have remedies of their own.
        of: what stands for CODE or COLUMN in the command, where it is not the code of the play.
        goes_on: whether a usual change is one of the table afterwards.
    """

    arrange: Callable[[Shop], object]
    rows: Rows
    command: str = ""
    by_hand: Callable[[Shop], object] = lambda _: None
    asked: tuple[str, ...] = ("run",)
    then: tuple[str, ...] = ()
    of: str = ""
    goes_on: bool = True


LISTED = ("errors", "list")
LOADED: Rows = {0: "load 0", 1: "load 1", 2: "load 2", 3: "load 3"}
CHANGED: Rows = {**LOADED, 1: "one", 3: "three"}


def loaded(shop: Shop) -> None:
    shop.load()
    shop.run()
    shop.change(1, ("U", 1, "one"), ("U", 3, "three"))
    shop.run()


def with_row(**fields: str) -> Callable[[Shop], None]:
    def arrange(shop: Shop) -> None:
        loaded(shop)
        shop.write_row(**fields)

    return arrange


def unknown_operation(shop: Shop) -> None:
    loaded(shop)
    shop.change(2, ("X", 1, "lost"))


def text_of_another_type(shop: Shop) -> None:
    ids = pa.array([0, 1, 2, 3], pa.int32())
    write(shop.landing, "LOAD00000001.parquet", pa.table({"id": ids, "v": pa.array([10, 11, 12, 13], pa.int64())}))
    shop.write_row(options="{types: {v: int}}")
    shop.run()
    shop.change(1, ("U", 1, "many"))


def unreadable_change(shop: Shop) -> None:
    loaded(shop)
    write_bytes(shop.landing, "20240109-000000001.parquet", b"PAR1 no more")


def delivered_again(shop: Shop) -> None:
    shop.change(9, ("U", 0, "again"))
    shutil.move(shop.landing / "20240101-000000009.parquet", shop.landing / "20240109-000000001.parquet")


def unreadable_load(shop: Shop) -> None:
    shop.load()
    write_bytes(shop.landing, "LOAD00000002.parquet", b"PAR1 no more")


def smaller_load(shop: Shop) -> None:
    loaded(shop)
    shop.load(1)


def truncated(shop: Shop) -> None:
    loaded(shop)
    shop.change(2, ("T", None, None), ("I", 7, "new"))  # type: ignore[arg-type] # the key of a truncate


def foreign(shop: Shop) -> None:
    loaded(shop)
    DeltaTable(shop.lake.layout(SPEC).replica).delete("id = 1")


def without_ledger(shop: Shop) -> None:
    loaded(shop)
    shutil.rmtree(Path(shop.lake.layout(SPEC).state, "commits"))


def older_ledger(shop: Shop) -> None:
    loaded(shop)
    newest = max(Path(shop.lake.layout(SPEC).state, "commits").iterdir())
    newest.unlink()


def landing_root_away(shop: Shop) -> None:
    loaded(shop)
    shutil.move(shop.folder / "landing", shop.folder / "away")


def landing_root_back(shop: Shop) -> None:
    shutil.move(shop.folder / "away", shop.folder / "landing")


def folder_away(shop: Shop) -> None:
    loaded(shop)
    shutil.move(shop.landing, shop.folder / "away")


def folder_back(shop: Shop) -> None:
    shutil.move(shop.folder / "away", shop.landing)


def shared_keys(shop: Shop) -> None:
    table = pa.table(
        {"id": pa.array([0, 0, 1], pa.int32()), "n": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", "c"]}
    )
    write(shop.landing, "LOAD00000001.parquet", table)


def new_column(shop: Shop) -> None:
    loaded(shop)
    shop.write_row(schema_evolution="{new_column: fail}")
    table = pa.table({"Op": ["U"], "seq": [900], "id": pa.array([0], pa.int32()), "v": ["0"], "more": ["x"]})
    write(shop.landing, "20240109-000000001.parquet", table)


def emptied(shop: Shop) -> None:
    loaded(shop)
    (shop.landing / "LOAD00000001.parquet").unlink()


def stale(shop: Shop) -> None:
    loaded(shop)
    shop.change(2, ("X", 1, "newer"))


def incomplete_load(shop: Shop) -> None:
    unreadable_load(shop)
    shop.run()
    shop.run("errors", "dismiss", "--table", "s.t", "--code", "FILE_UNREADABLE", "--reason", "played")
    shop.change(1, ("U", 1, "one"), ("U", 3, "three"))


def empty_file(shop: Shop) -> None:
    loaded(shop)
    write_bytes(shop.landing, "20240109-000000001.parquet", b"")


def file_without_key(shop: Shop) -> None:
    loaded(shop)
    write(shop.landing, "20240109-000000001.parquet", pa.table({"Op": ["U"], "seq": [900], "v": ["0"]}))


def dropped_column(shop: Shop) -> None:
    ids = pa.array([0, 1, 2, 3], pa.int32())
    loads = pa.table({"id": ids, "v": ["load 0", "one", "load 2", "three"], "extra": ["a", "b", "c", "d"]})
    write(shop.landing, "LOAD00000001.parquet", loads)
    shop.run()
    shop.change(1, ("I", 9, "nine"))


def load_of_another_name(shop: Shop) -> None:
    """An hour after the changes, which came an hour after the first load."""
    now = time.time()
    shop.load()
    os.utime(shop.landing / "LOAD00000001.parquet", (now - 7200, now - 7200))
    shop.run()
    shop.change(1, ("U", 1, "one"), ("U", 3, "three"))
    os.utime(shop.landing / "20240101-000000001.parquet", (now - 3600, now - 3600))
    shop.run()
    shop.load_part("LOAD00000007.parquet")


def written(shop: Shop, **columns: Any) -> None:
    """A change file with these columns beside the usual ones of an update of key 1."""
    usual = {"Op": ["U"], "seq": [900], "id": pa.array([1], pa.int32()), "v": ["late"]}
    write(shop.landing, "20240109-000000001.parquet", pa.table({**usual, **columns}))


def without_key(shop: Shop) -> None:
    loaded(shop)
    written(shop, id=pa.array([None], pa.int32()))


def without_sequence(shop: Shop) -> None:
    loaded(shop)
    written(shop, seq=pa.array([None], pa.int64()))


def expected(shop: Shop) -> None:
    shop.write_row(expect="{short: {rule: length(v) < 9, on: quarantine}}")
    loaded(shop)
    written(shop, v=["much too long"])


def refused_partition(shop: Shop) -> None:
    shop.write_row(partition_by="[v]")
    loaded(shop)
    written(shop, v=[""])


def partitioned_otherwise(shop: Shop) -> None:
    shop.write_row(partition_by=None)
    shop.run("rebuild", "--table", "s.t")


def masked_and_clear_again(shop: Shop) -> None:
    shop.write_row(mask="{v: hash}")
    loaded(shop)
    shop.write_row(mask=None)
    shop.run()


def rewritten(shop: Shop) -> None:
    loaded(shop)
    shop.change(1, ("U", 1, "one"))
    os.utime(shop.landing / "20240101-000000001.parquet", (1, 1))


def changes_before_the_load(shop: Shop) -> None:
    """Two hours before: made during the load, or of another one."""
    shop.change(1, ("U", 1, "one"), ("U", 3, "three"))
    before = time.time() - 7200
    os.utime(shop.landing / "20240101-000000001.parquet", (before, before))
    shop.load()


def numbers_then_texts(shop: Shop) -> None:
    ids = pa.array([0, 1, 2, 3], pa.int32())
    write(shop.landing, "LOAD00000001.parquet", pa.table({"id": ids, "v": pa.array([10, 11, 12, 13], pa.int64())}))
    shop.run()
    shop.change(1, ("U", 1, "007"))


PLAYED: dict[str, Play] = {
    "OP_UNKNOWN": Play(
        arrange=unknown_operation, asked=LISTED, rows=CHANGED,
        command="gddl errors dismiss",
    ),
    "CAST_FAILED": Play(
        arrange=text_of_another_type, asked=LISTED, command="gddl errors replay",
        by_hand=lambda shop: shop.write_row(options="{types: {v: string}}"),
        rows={0: "10", 1: "many", 2: "12", 3: "13"},
    ),
    "FILE_UNREADABLE": Play(arrange=unreadable_change, by_hand=delivered_again, rows={**CHANGED, 0: "again"}),
    "FIRST_LOAD_UNREADABLE": Play(
        arrange=unreadable_load, command="gddl errors dismiss", rows=LOADED, then=("LOAD_INCOMPLETE",)
    ),
    "SWEEP_HELD": Play(arrange=smaller_load, command="gddl release sweep", rows={0: "load 0"}),
    "TRUNCATE_HELD": Play(
        arrange=lambda shop: (shop.write_row(truncate="hold"), truncated(shop)),
        command="gddl release truncate", rows={7: "new"},
    ),
    "TRUNCATE_IGNORED": Play(
        arrange=lambda shop: (shop.write_row(truncate="report"), truncated(shop)),
        by_hand=lambda shop: shop.write_row(truncate="apply"), command="gddl reload --from-files", rows={7: "new"},
    ),
    "FOREIGN_COMMIT": Play(arrange=foreign, command="gddl rebuild", rows=CHANGED),
    "VERIFY_DIFFERENT": Play(arrange=foreign, asked=("verify",), command="gddl rebuild", rows=CHANGED),
    "LEDGER_MISSING": Play(
        arrange=without_ledger, asked=("verify",), command="gddl rebuild", rows=CHANGED, then=("GENERATIONS_INFERRED",)
    ),
    "LEDGER_BEHIND": Play(arrange=older_ledger, command="gddl rebuild", rows=CHANGED),
    "KEYS_CHANGED": Play(arrange=with_row(keys="[id, v]"), command="gddl rebuild", rows=CHANGED),
    "SEQUENCE_CHANGED": Play(arrange=with_row(sequence_by="[seq, id]"), command="gddl rebuild", rows=CHANGED),
    "COLUMNS_CHANGED": Play(arrange=with_row(exclude_columns="[seq]"), command="gddl rebuild", rows=CHANGED),
    "MASK_CHANGED": Play(arrange=with_row(mask="{v: 'null'}"), command="gddl rebuild", rows=dict.fromkeys(LOADED)),
    "PARTITION_CHANGED": Play(arrange=with_row(partition_by="[id]"), command="gddl rebuild", rows=CHANGED),
    "FILTER_CHANGED": Play(
        arrange=with_row(where="id <> 2"), command="gddl rebuild", rows={0: "load 0", 1: "one", 3: "three"}
    ),
    "RENAME_CHANGED": Play(arrange=with_row(rename="{v: w}"), command="gddl reload --from-files", rows=CHANGED),
    "LANDING_MISSING": Play(arrange=landing_root_away, by_hand=landing_root_back, rows=CHANGED),
    "FOLDER_MISSING": Play(arrange=folder_away, by_hand=folder_back, rows=CHANGED),
    "KEYS_SHARED": Play(
        arrange=shared_keys, by_hand=lambda shop: shop.write_row(keys="[id, n]"), command="gddl rebuild",
        rows={0: "b", 1: "c"}, goes_on=False,
    ),
    "SCHEMA_REFUSED": Play(
        arrange=new_column, by_hand=lambda shop: shop.write_row(schema_evolution=None), rows={**CHANGED, 0: "0"}
    ),
    "RELOAD_UNCONFIRMED": Play(
        arrange=emptied, asked=("reload", "--from-files", "--table", "s.t"), command="gddl reload --from-files --yes",
        rows={1: "one", 3: "three"},
    ),
    "QUARANTINE_STALE": Play(arrange=stale, command="gddl errors dismiss", of="OP_UNKNOWN", rows=CHANGED),
    "LOAD_INCOMPLETE": Play(arrange=incomplete_load, by_hand=lambda shop: shop.load_part(), rows=CHANGED),
    "FILE_EMPTY": Play(
        arrange=empty_file, by_hand=delivered_again, rows={**CHANGED, 0: "again"}
    ),
    "FILE_KEY_MISSING": Play(
        arrange=file_without_key, by_hand=delivered_again, rows={**CHANGED, 0: "again"}
    ),
    "COLUMN_DROPPED": Play(
        arrange=dropped_column, by_hand=lambda shop: shop.write_row(exclude_columns="[extra]"), command="gddl rebuild",
        then=("COLUMN_DROPPED",), rows={**CHANGED, 9: "nine"}
    ),
    "LOAD_AFTER_CHANGES": Play(
        arrange=load_of_another_name, by_hand=lambda shop: shop.write_row(generations="by_time"),
        command="gddl reload --from-files", rows=LOADED,
    ),
    "DERIVED_CHANGED": Play(
        arrange=with_row(derive="{w: 'upper(v)'}"), command="gddl rebuild", rows=CHANGED
    ),
    "KEY_NULL": Play(arrange=without_key, asked=LISTED, command="gddl errors dismiss", rows=CHANGED),
    "SEQUENCE_NULL": Play(arrange=without_sequence, asked=LISTED, command="gddl errors dismiss", rows=CHANGED),
    "EXPECTATION_FAILED": Play(
        arrange=expected, asked=LISTED, by_hand=lambda shop: shop.write_row(expect=None), command="gddl errors replay",
        rows={**CHANGED, 1: "much too long"},
    ),
    "PARTITION_VALUE_REFUSED": Play(
        arrange=refused_partition, asked=LISTED, by_hand=partitioned_otherwise,
        command="gddl errors replay", rows={**CHANGED, 1: ""},
    ),
    "GENERATIONS_UNKNOWN": Play(
        arrange=changes_before_the_load, by_hand=lambda shop: shop.write_row(generations="one"), rows=CHANGED
    ),
    "TEXT_CONVERTED": Play(
        arrange=numbers_then_texts, by_hand=lambda shop: shop.write_row(options="{types: {v: string}}"),
        command="gddl reload --from-files", rows={0: "10", 1: "007", 2: "12", 3: "13"},
    ),
    "REBUILD_NEEDS_FILES": Play(
        arrange=masked_and_clear_again, asked=("rebuild", "--table", "s.t"), command="gddl reload --from-files",
        rows=CHANGED,
    ),
    "FILE_REWRITTEN": Play(arrange=rewritten, command="gddl reload --from-files", rows={**CHANGED, 3: "load 3"}),
}  # fmt: skip


NEXT = 50
"""The key of a change that comes after the remedy."""


def said_of(code: str, results: list[dict[str, Any]], said: str) -> str:
    """The message that has the code, and what status, page and docs/codes.md say of it."""
    errors = [result["error"]["message"] for result in results if (result.get("error") or {}).get("code") == code]
    warnings = [one["message"] for result in results for one in result.get("warnings") or () if one["code"] == code]
    assert errors or warnings or code in said, said
    return "\n".join((*errors, *warnings, REGISTER[code].remedy()))


def follow(shop: Shop, text: str, begin: str, code: str) -> None:
    """Type the command, and the one of its own refusal, which asks for a confirmation."""
    named = [command for command in COMMAND.findall(text) if command.startswith(begin)]
    assert named, text
    command = re.sub(r"--table T\b", "--table s.t", named[0]).replace("--code CODE", f"--code {code}")
    results, said = shop.run(*shlex.split(command)[1:])
    errors = [result["error"] for result in results if result.get("error")]
    if errors and errors[0]["code"] == "RELOAD_UNCONFIRMED" and "--yes" not in command:
        return follow(shop, errors[0]["message"], begin, code)
    assert errors == [], said
    return None


@pytest.mark.parametrize("code", PLAYED)
def test_the_remedy_of_a_code_ends_it(code: str, tmp_path: Path) -> None:
    play, shop = PLAYED[code], Shop(tmp_path)
    shop.write_row()
    play.arrange(shop)
    if play.asked != ("run",):
        shop.run()
    text = said_of(code, *shop.run(*play.asked)) + (shop.listed() if play.asked[0] == "errors" else "")
    play.by_hand(shop)
    if play.command:
        follow(shop, text, play.command, play.of or code)
    shop.run()
    if code == "VERIFY_DIFFERENT":
        shop.run("verify")
    state = shop.state()
    assert (state["attention"], state["error"]) == ([*play.then], None)
    assert shop.rows() == play.rows
    shop.change(20, ("I", NEXT, "next"))
    ((result,), said) = shop.run()
    assert (result["error"], result["main"]["inserted"]) == (None, int(play.goes_on)), said
    assert set(shop.state()["attention"]) <= ({"LOAD_INCOMPLETE"} if play.goes_on else {"FILE_UNREADABLE"})
    ((verified,), said) = shop.run("verify")
    assert verified["error"] is None, said


def test_a_landing_root_that_is_back_without_the_folder_is_no_missing_root(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write_row()
    landing_root_away(shop)
    shop.run()
    assert "LANDING_MISSING" in shop.state()["error"]
    (shop.folder / "landing").mkdir()
    shop.run()
    state = shop.state()
    assert (state["state"], state["failed"], state["error"]) == ("attention", False, None)
    assert state["attention"] == ["FOLDER_MISSING"]


ELSEWHERE = {
    "BASELINE_LOST": "adopt/test_adopt.py::test_a_lost_property_stops_the_table_until_a_rebuild",
    "BEFORE_IMAGES_CHANGED": "scenarios/r14_before_images_later",
    "CATALOG_TABLE_DROPPED": "catalogs/test_catalog_command.py::test_a_catalog_is_filled_compared_and_filled_again",
    "LANDING_MOVED": "one_task/test_other_landing_folder.py::test_table_without_keys_is_refused_and_reloaded",
    "LOG_BEGAN_LATE": "debezium/test_log_restarts.py::test_full_refresh_reorders_changes_after_a_log_reset",
    "MODE_CHANGED": "one_task/test_table_snapshots.py::test_a_table_of_changes_becomes_one_of_snapshots_by_a_reload",
    "PARTITIONS_KEPT": "capture/test_partitions.py::test_rows_of_dropped_partitions_stay_and_the_run_says_so",
    "SNAPSHOT_HELD": "one_task/test_table_snapshots.py::test_a_snapshot_that_lacks_too_much_is_held",
    "GENERATIONS_INFERRED": "one_task/test_copied_objects.py::test_large_text_of_equal_size_and_start_is_a_copy",
    "TABLE_DAMAGED": "one_task/test_damaged_tables.py::test_damage_is_harmless_or_named_with_its_repair",
    "SNAPSHOT_MERGED": "debezium/test_snapshots.py::test_reload_follows_what_only_a_person_knows",
    "SOURCE_DIFFERENT": "databases/test_resync_rows.py::test_differences_that_verify_has_found_are_repaired",
    "SOURCE_LOG_LOST": "capture/test_repairs.py::test_load_that_was_broken_off_begins_anew_where_the_log_was_lost",
    "SOURCE_LOG_RESTARTED": "capture/test_repairs.py::test_table_that_was_made_again_is_named",
    "SOURCE_LOG_STOPPED": "capture/test_stopped.py::test_value_that_ends_the_engine_stops_its_table_alone",
    "SOURCE_TABLE_ALTERED": "capture/test_altered.py::test_alteration_without_a_change_is_named_and_mended",
    "SOURCE_TABLE_MISSING": "capture/test_altered.py::test_renamed_table_is_named_and_followed",
    "TABLES_MISSING": "scenarios/test_foreign.py::test_missing_table_folder_is_reported_and_restored_by_a_refresh",
}
"""Codes whose remedy's command another test runs in their situation."""
PARSED_ALONE = {
    *("ADDED_COLUMN_DEFAULT", "CATALOG_CHANGE_UNSUPPORTED", "CHANGES_INCOMPATIBLE"),
    *("CSV_EMPTY_FIELDS", "CSV_NOT_SUPPLIED", "ERASED_KEY_MOVED", "FOREIGN_ROWS"),
    *("CUTS_UNMASKED", "KEY_TYPE", "MAINTENANCE_DUE", "REBUILD_REFUSED"),
    *("APPEND_ONLY_CHANGE", "LOAD_UNREADABLE", "RELOAD_UNFINISHED"),
    *("SEQUENCE_WIDTH", "SNAPSHOT_INCOMPLETE", "SOURCE_TEXT_INVALID"),
    *("SWEEP_PENDING", "TABLE_BUSY", "TABLE_NOT_OURS", "WINDOW_DIFFERENT"),
}
"""Codes whose remedy's command is only known to be one that `gddl` takes (`unit/test_remedies.py`)."""
CHANGING = re.compile(
    r"`gddl (?:rebuild|reload|resync|release sweep|release truncate|errors replay|errors dismiss|load|adopt|erase"
    r"|as-of drop|maintain|catalog sync)\b"
)
"""Commands that change something."""


def test_the_remedy_of_every_code_has_its_place() -> None:
    """A code that is new, or whose remedy names a command now, is played here, or its test is named."""
    wanted = {code for code in REGISTER if CHANGING.search(REGISTER[code].remedy())}
    assert wanted == {*ELSEWHERE, *PARSED_ALONE} | (wanted & PLAYED.keys())
    assert not PLAYED.keys() & {*ELSEWHERE, *PARSED_ALONE}
    for test in ELSEWHERE.values():
        path, _, function = test.partition("::")
        found = Path(__file__).parents[1] / path
        assert found.is_dir() or f"def {function}" in found.read_text(encoding="utf-8"), test
