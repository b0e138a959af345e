"""The commands in this process, on real metadata files and a real child process; only the job in it is a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_gddl import __version__
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.codes import KEY_NULL, OP_UNKNOWN
from airflow_gddl.contract.spec import JobOptions

FAKE = Path(__file__).with_name("fake_job.py")
KEYS = [
    *("table", "status", "mode", "tasks", "place", "batches", "files", "rows_read", "changes_written", "redelivered"),
    *("quarantined", "main", "schema_changes", "warnings", "freshness", "seconds", "error"),
]
GOOD = """
source: shop
tables:
  - {table: sales.orders, keys: [id], freshness: 30m}
  - {table: sales.lines, keys: [order_id, n], priority: high}
  - {table: sales.old, keys: [id], enabled: false}
"""
BAD = """
source: shop
tables:
  - {table: sales.bad, keys: [id], delete: sometimes}
"""


@dataclass
class Answer:
    status: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines; fails when anything else is there."""
        return [json.loads(line) for line in self.out.splitlines()]


class Shop:
    """A project folder with metadata, and the command line in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self._capsys = capsys
        self.write("metadata/gddl.yaml", "landing: ../landing\nlake: ../lake\nrunner: local\n")
        self.write("metadata/tables/sales.yaml", GOOD)
        java = self.write("java/bin/java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
        java.chmod(0o755)
        self.around = CliContext(
            environ={"PATH": os.environ["PATH"], "JAVA_HOME": str(folder / "java")},
            now=lambda: datetime(2024, 1, 2, 12, tzinfo=UTC),
            new_id=lambda: "aa",
            job_command=(sys.executable, str(FAKE)),
        )

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def gddl(self, *arguments: str, **job: Any) -> Answer:
        """Run a command line; `job` tells the stand-in what to do."""
        orders = {"dump": str(self.folder / "order.json"), **job}
        around = replace(self.around, environ={**self.around.environ, "FAKE_JOB": json.dumps(orders)})
        command = [arguments[0], *arguments[1:]]
        status = invoke([*command, "--metadata", str(self.folder / "metadata")], around)
        shown = self._capsys.readouterr()
        return Answer(status, shown.out, shown.err)

    @property
    def order(self) -> dict[str, Any]:
        """The JobSpec that the job got."""
        spec: dict[str, Any] = json.loads((self.folder / "order.json").read_text())["spec"]
        return {**spec, "options": plain(decode(JobOptions, spec.get("options", {})))}


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(tmp_path, capsys)


BOTH: dict[str, Any] = {"sales.orders": {"rows_read": 5}, "sales.lines": {"rows_read": 1234, "mode": "initial"}}


def test_run_all_enabled_tables(shop: Shop) -> None:
    answer = shop.gddl("run", results=BOTH)
    assert answer.status == 0, answer.err
    assert "1,234" in answer.out
    lines = answer.out.splitlines()[2:]
    assert [line.split()[0] for line in lines[:-1]] == ["sales.lines", "sales.orders"]
    assert lines[-1] == "2 tables: 2 succeeded; 1,239 rows read"
    assert [line.partition(":")[0] for line in answer.err.splitlines()] == [
        "1 of 2  sales.lines",
        "2 of 2  sales.orders",
    ]
    assert [table["table"] for table in shop.order["tables"]] == ["sales.lines", "sales.orders"]
    assert shop.order["run_id"] == "20240102T120000-aa"
    assert shop.order["roots"] == {"landing": str(shop.folder / "landing"), "lake": str(shop.lake)}
    assert shop.order["options"]["action"]["name"] == "run"


def test_run_json_is_one_object_a_table_and_nothing_else(shop: Shop) -> None:
    answer = shop.gddl("run", "--json", results=BOTH, noise=["a library prints"])
    assert answer.status == 0
    assert [record["table"] for record in answer.records] == ["sales.lines", "sales.orders"]
    for record in answer.records:
        assert list(record)[: len(KEYS)] == KEYS
        assert list(record["main"]) == ["inserted", "updated", "deleted", "rows"]
        assert list(record["freshness"]) == ["commit_ts", "lag_seconds", "complete_until", "waiting_since"]


def test_options_reach_the_job(shop: Shop) -> None:
    arguments = (
        "run",
        "--table",
        "sales.orders",
        "--table",
        "sales.orders",
        "--full-refresh",
        "--wait",
        "2.5",
        "--json",
    )
    answer = shop.gddl(*arguments, results=BOTH)
    assert answer.status == 0
    assert [table["table"] for table in shop.order["tables"]] == ["sales.orders"]
    options = shop.order["options"]
    assert (options["wait_seconds"], options["action"]["name"]) == (2.5, "rebuild")
    assert options["full_listing"], "a person started it"


def test_a_failed_table_does_not_hide_the_others(shop: Shop) -> None:
    error = {"code": "SCHEMA_REFUSED", "message": "[SCHEMA_REFUSED] no."}
    warnings = [{"code": "SEQUENCE_TIE", "message": "two changes", "count": 3, "sample": ["7"]}]
    results = {"sales.orders": {"status": "failed", "error": error}, "sales.lines": {"warnings": warnings}}
    answer = shop.gddl("run", results=results, exit=1)
    assert answer.status == 1
    assert "succeeded" in answer.out
    assert "sales.orders: [SCHEMA_REFUSED] no.\n" in answer.err
    assert "sales.lines: [SEQUENCE_TIE] two changes (3 times), e.g. 7\n" in answer.err
    assert str(shop.lake / "_gddl" / "logs" / "jobs" / "20240102T120000-aa.log") in answer.err


def test_a_passing_fault_is_75(shop: Shop) -> None:
    busy = {"status": "failed", "error": {"code": "TABLE_BUSY", "message": "held"}}
    answer = shop.gddl("run", "--json", results={"sales.orders": busy, "sales.lines": {}}, exit=75)
    assert answer.status == 75


def test_a_crashed_job_is_reported_with_its_last_log_lines(shop: Shop) -> None:
    answer = shop.gddl("run", "--json", results={"sales.lines": {}}, log=["java.lang.OutOfMemoryError"], exit=9)
    assert answer.status == 1
    assert [(r["table"], r["status"]) for r in answer.records] == [
        ("sales.lines", "succeeded"),
        ("sales.orders", "failed"),
    ]
    assert answer.records[1]["error"]["code"] == "JOB_DIED"
    assert "exit status 9" in answer.err
    assert "java.lang.OutOfMemoryError" in answer.err


def test_a_bad_row_stops_no_other_table(shop: Shop) -> None:
    shop.write("metadata/tables/bad.yaml", BAD)
    answer = shop.gddl("run", "--json", results=BOTH)
    assert answer.status == 2
    assert [record["status"] for record in answer.records] == ["succeeded", "succeeded"]
    assert "tables/bad.yaml:4" in answer.err
    assert "sales.bad" in answer.err
    failed = shop.gddl("run", "--json", results={"sales.orders": {}, "sales.lines": {"status": "failed"}}, exit=1)
    assert failed.status == 1


def test_a_named_table_does_not_care_for_another_bad_row(shop: Shop) -> None:
    shop.write("metadata/tables/bad.yaml", BAD)
    answer = shop.gddl("run", "--table", "sales.orders", results=BOTH)
    assert answer.status == 0, answer.err
    assert "sales.bad" not in answer.err
    bad = shop.gddl("run", "--table", "sales.bad")
    assert bad.status == 2
    assert "TABLE_ROW_BAD" in bad.err
    assert "tables/bad.yaml:4" in bad.err


def test_an_unknown_table_runs_nothing(shop: Shop) -> None:
    answer = shop.gddl("run", "--table", "sales.order", "--json")
    assert (answer.status, answer.out) == (2, "")
    assert "TABLE_UNKNOWN" in answer.err
    assert "did you mean sales.orders" in answer.err
    assert not (shop.folder / "order.json").exists()


def test_nothing_runs_when_all_rows_are_bad(shop: Shop) -> None:
    shop.write("metadata/tables/sales.yaml", BAD)
    answer = shop.gddl("run", "--json")
    assert (answer.status, answer.out) == (2, "")
    assert not (shop.folder / "order.json").exists()


def test_no_rows_at_all(shop: Shop) -> None:
    (shop.folder / "metadata" / "tables" / "sales.yaml").unlink()
    answer = shop.gddl("run")
    assert answer.status == 2
    assert "NO_TABLES" in answer.err


@pytest.mark.parametrize("command", [("run",), ("validate",), ("status",), ("verify",), ("errors", "list")])
def test_a_missing_metadata_folder_is_named(
    shop: Shop, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status = invoke([*command, "--metadata", str(shop.folder / "nowhere")], shop.around)
    shown = capsys.readouterr()
    assert status == 2
    assert shown.out == ""
    assert shown.err.startswith(f"[METADATA_MISSING] there is no folder '{shop.folder}/nowhere'.")


@pytest.mark.parametrize("command", [("run",), ("status",), ("verify",), ("errors", "replay")])
def test_invalid_settings_stop_the_command_with_their_position(shop: Shop, command: tuple[str, ...]) -> None:
    shop.write("metadata/gddl.yaml", "landing: ../landing\nlakes: ../lake\n")
    answer = shop.gddl(*command)
    assert (answer.status, answer.out) == (2, "")
    assert "gddl.yaml:2" in answer.err
    assert "lakes" in answer.err
    shown = shop.gddl("validate", "--json").records
    assert ("gddl.yaml", 2, "lakes") in [(problem["file"], problem["line"], problem["field"]) for problem in shown]


@pytest.mark.usefixtures("with_spark")
def test_java_is_checked_first(shop: Shop) -> None:
    shop.write("java/bin/java", "#!/bin/sh\necho 'java version \"1.8.0_392\"' >&2\n")
    tiers = "tiers: {small: {tasks: many}}\n"
    shop.write("metadata/gddl.yaml", f"landing: ../landing\nlake: ../lake\n{tiers}")
    answer = shop.gddl("run", "--json")
    assert (answer.status, answer.out) == (2, "")
    assert "[JAVA_MISSING]" in answer.err
    assert "adoptium.net" in answer.err
    assert not shop.lake.exists()


def test_another_runner_is_refused(shop: Shop) -> None:
    shop.write("metadata/gddl.yaml", "landing: ../landing\nlake: ../lake\nrunner: moon\n")
    answer = shop.gddl("validate")
    names = "local, databricks, emr_serverless, glue, spark_submit"
    line = f"gddl.yaml:3:1: RUNNER_UNKNOWN runner: no such runner (value 'moon') — write one of {names}"
    assert (answer.status, answer.out) == (2, f"{shop.folder}/metadata/{line}\n1 problem in the metadata\n")
    assert shop.gddl("run").status == 2


def test_verify_says_which_differ(shop: Shop) -> None:
    keys = [{"key": '{"id": 1}', "state": "missing"}, {"key": '{"id": 2}', "state": "extra"}]
    results = {
        "sales.orders": {"details": {"verdict": "equal", "rows": 5, "expected_rows": 5, "keys": []}},
        "sales.lines": {"details": {"verdict": "different", "rows": 4, "expected_rows": 5, "keys": keys}},
    }
    answer = shop.gddl("verify", results=results)
    assert answer.status == 1
    assert shop.order["options"]["action"]["name"] == "verify"
    rows = {line.split()[0]: line for line in answer.out.splitlines() if line.startswith("sales.")}
    assert "different" in rows["sales.lines"]
    assert '{"id": 1} missing, {"id": 2} extra' in rows["sales.lines"]
    assert "equal" in rows["sales.orders"]
    assert shop.gddl("verify", "--table", "sales.orders", "--json", results=results).status == 0


def test_verify_names_columns_that_were_not_compared_with_the_source(shop: Shop) -> None:
    source = {"source_rows": 5, "unsettled": 0, "keys": [], "not_compared": {"code": "text and int don't compare"}}
    results = {
        "sales.orders": {"details": {"verdict": "equal", "rows": 5, "expected_rows": 5, "keys": [], "source": source}},
        "sales.lines": {"details": {"verdict": "equal", "rows": 1, "expected_rows": 1, "keys": []}},
    }
    lines = [" ".join(line.split()) for line in shop.gddl("verify", results=results).out.splitlines()]
    assert [line for line in lines if "not compared" in line] == [
        "sales.orders: code was not compared with the source: text and int don't compare"
    ]


def test_errors_list_shows_hostile_values_as_text(shop: Shop) -> None:
    row = {"code": "NULL_KEY", "text": "[red]\x1b[31m", "record": {"id": None}}
    found = {"unresolved": 2000, "codes": [], "rows": [row]}
    results = {"sales.orders": {"details": found}, "sales.lines": {"details": {"unresolved": 0, "rows": []}}}
    answer = shop.gddl("errors", "list", "--rows", "--limit", "7", results=results)
    assert answer.status == 0
    action = shop.order["options"]["action"]
    assert (action["name"], action["mode"], action["limit"]) == ("handle_errors", "list", 7)
    assert "sales.orders: 2,000 in quarantine, 1 shown" in answer.out
    assert "sales.lines: nothing in quarantine" in answer.out
    assert "[red]\\x1b[31m" in answer.out
    assert "\x1b" not in answer.out


OF_CODES = {
    "unresolved": 1205,
    "codes": [
        {
            "code": "OP_UNKNOWN",
            "rows": 1200,
            "files": 3,
            "first": "2024-01-01T09:00:00.25Z",
            "last": "2024-01-02T08:00:00Z",
        },
        {"code": "KEY_NULL", "rows": 1, "files": 1, "first": "2024-01-01T09:00:00Z", "last": "2024-01-01T09:00:00.5Z"},
        {"code": "FILE_EMPTY", "rows": 4, "files": 4, "first": "2024-01-01T09:00:00Z", "last": "2024-01-01T10:00:00Z"},
    ],
    "rows": [
        {"key": {"region": "EU", "id": 7}, "id": "b/1", "code": "OP_UNKNOWN", "reason": "'X'", "source_file": "a.csv"},
        {"key": None, "id": "b/f.csv", "code": "FILE_EMPTY", "reason": "no bytes", "source_file": "f.csv"},
    ],
}


def test_errors_list_is_a_summary_by_code_with_the_commands_to_use(shop: Shop) -> None:
    answer = shop.gddl("errors", "list", "--table", "sales.orders", results={"sales.orders": {"details": OF_CODES}})
    place = f"--metadata {shop.folder / 'metadata'}"
    assert (answer.status, answer.out.splitlines()) == (
        0,
        [
            "sales.orders: 1,205 in quarantine",
            "  OP_UNKNOWN  1,200 rows of 3 files, 2024-01-01 09:00:00 to 2024-01-02 08:00:00 UTC",
            f"    remedy  {OP_UNKNOWN.remedy()}",
            f"    rows    gddl errors list --table sales.orders --code OP_UNKNOWN {place} --rows",
            f"    replay  gddl errors replay --table sales.orders --code OP_UNKNOWN {place}",
            f"    dismiss gddl errors dismiss --table sales.orders --code OP_UNKNOWN {place} --reason TEXT",
            "  KEY_NULL  1 row of 1 file, at 2024-01-01 09:00:00 UTC",
            f"    remedy  {KEY_NULL.remedy('sales.orders')}",
            f"    rows    gddl errors list --table sales.orders --code KEY_NULL {place} --rows",
            f"    replay  gddl errors replay --table sales.orders --code KEY_NULL {place}",
            f"    dismiss gddl errors dismiss --table sales.orders --code KEY_NULL {place} --reason TEXT",
            "  FILE_EMPTY  4 files, 2024-01-01 09:00:00 to 2024-01-01 10:00:00 UTC",
            "    remedy  deliver the file again: it is read when it changes; if it can't be, dismiss it",
            f"    rows    gddl errors list --table sales.orders --code FILE_EMPTY {place} --rows",
            f"    dismiss gddl errors dismiss --table sales.orders --code FILE_EMPTY {place} --reason TEXT",
        ],
    )


@pytest.mark.parametrize(
    ("code", "is_shown"), [("FILE_UNREADABLE", True), ("FILE_TOO_LARGE", True), ("FILE_EMPTY", False)]
)
def test_errors_list_shows_the_replay_of_files_that_it_may_read(code: str, is_shown: bool, shop: Shop) -> None:
    found = [{**OF_CODES["codes"][-1], "code": code}]
    answer = shop.gddl(
        "errors", "list", "--table", "sales.orders", results={"sales.orders": {"details": {**OF_CODES, "codes": found}}}
    )
    assert (f"gddl errors replay --table sales.orders --code {code}" in answer.out) == is_shown


def test_errors_list_shows_rows_with_their_keys_first(shop: Shop) -> None:
    quarantined(shop, "OP_UNKNOWN")
    command = ("errors", "list", "--table", "sales.orders", "--rows", "--code", "OP_UNKNOWN")
    answer = shop.gddl(*command, results={"sales.orders": {"details": OF_CODES}})
    assert (shop.order["options"]["action"]["codes"], answer.out.splitlines()) == (
        ["OP_UNKNOWN"],
        [
            "sales.orders: 1,205 in quarantine, 2 shown",
            "",
            "region=EU id=7  OP_UNKNOWN  'X'",
            "  id           b/1",
            "  source_file  a.csv",
            "",
            "FILE_EMPTY  no bytes",
            "  id           b/f.csv",
            "  source_file  f.csv",
        ],
    )
    answer = shop.gddl("errors", "list", "--table", "sales.orders", "--code", "NOPE")
    assert (answer.status, "[OPTION_INVALID]" in answer.err) == (2, True)


def test_errors_list_has_one_line_for_all_tables_without_errors(shop: Shop) -> None:
    none = {"details": {"unresolved": 0, "rows": []}}
    answer = shop.gddl("errors", "list", results={"sales.orders": none, "sales.lines": none})
    assert (answer.status, answer.out) == (0, "2 tables: nothing in quarantine\n")


@pytest.mark.parametrize("first", ["source", "log", "topic"])
def test_dry_run_says_where_a_run_reads_before_it_loads_files(first: str, shop: Shop) -> None:
    plan = {"status": "skipped", "details": {"batches": [], "folder_missing": True, "reads_first": first}}
    answer = shop.gddl("run", "--dry-run", "--table", "sales.lines", results={"sales.lines": plan})
    assert f"{first} first" in " ".join(answer.out.split())
    assert "does not exist" not in answer.out


def test_dry_run_shows_the_batches(shop: Shop) -> None:
    files = [f"/landing/sales/orders/{n:03d}.parquet" for n in range(12)]
    batch = {"batch": 3, "mode": "incremental", "files": files, "bytes": 4096, "resumed": True, "sweep": False}
    results = {
        "sales.orders": {"details": {"batches": [batch, {**batch, "batch": 4, "resumed": False, "files": files[:1]}]}},
        "sales.lines": {"status": "skipped", "details": {"batches": [], "folder_missing": True}},
    }
    answer = shop.gddl("run", "--dry-run", results=results)
    assert answer.status == 0
    assert shop.order["options"]["action"]["name"] == "plan"
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    rows = [line for line in lines if line.startswith("sales.") and ":" not in line]
    assert rows == [
        "sales.lines skipped the landing folder does not exist",
        "sales.orders succeeded incremental 3 12 4,096 begun before, resumed",
        "sales.orders succeeded incremental 4 1 4,096",
    ]
    assert "sales.orders: /landing/sales/orders/009.parquet\nsales.orders: and 2 more\n" in answer.out
    (record, _) = shop.gddl("run", "--dry-run", "--json", results=results).records[::-1]
    assert record["details"]["batches"][0]["files"] == files


def test_catalog_diff_gives_no_reason_of_its_own_where_a_catalog_was_not_reached(shop: Shop) -> None:
    warning = {"code": "CATALOG_UNREACHABLE", "message": "localhost:1 does not answer", "count": 1, "sample": []}
    results = {
        "sales.orders": {"details": {"catalog": "main", "tables": []}, "warnings": [warning]},
        "sales.lines": {"status": "skipped", "details": {"catalog": None, "tables": []}},
    }
    answer = shop.gddl("catalog", "diff", results=results)
    assert (answer.status, answer.out) == (1, "")
    assert answer.err.splitlines()[-1] == "sales.orders: [CATALOG_UNREACHABLE] localhost:1 does not answer"


NOTHING_READ = {"sales.orders": {"rows_read": 0}}


def test_errors_replay_orders_the_chosen_codes(shop: Shop) -> None:
    answer = shop.gddl("errors", "replay", "--table", "sales.orders", "--json", results=BOTH)
    assert (answer.status, [record["table"] for record in answer.records]) == (0, ["sales.orders"])
    assert shop.order["options"]["action"]["mode"] == "replay"
    quarantined(shop, "OP_UNKNOWN", "KEY_NULL")
    chosen = ("--code", "OP_UNKNOWN", "--code", "KEY_NULL")
    answer = shop.gddl(
        "errors", "replay", "--table", "sales.orders", *chosen, results={"sales.orders": {"rows_read": 0}}
    )
    assert shop.order["options"]["action"]["codes"] == ["OP_UNKNOWN", "KEY_NULL"]
    assert answer.out.splitlines()[-1] == "sales.orders: nothing in quarantine with code OP_UNKNOWN or KEY_NULL"


def quarantined(shop: Shop, *codes: str, resolved: str = "OP_UNKNOWN") -> None:
    """An errors table of `sales.orders`: a row for each of the codes, and one that was accepted since."""
    at = pa.array([*[None] * len(codes), "2024-01-01"], pa.string())
    rows = pa.table({"code": [*codes, resolved], "resolved_at": at})
    write_deltalake(shop.lake / "sales/orders__errors", rows, mode="overwrite")


def test_a_replay_of_codes_that_are_not_in_quarantine_is_refused(shop: Shop) -> None:
    none = "[OPTION_INVALID] sales.orders: 0 rows with code NOPE; in quarantine: "
    remedy = "Remedy: name codes that are in quarantine, or leave out --code\n"
    command = ("errors", "replay", "--table", "sales.orders")
    shop.lake.mkdir()
    answer = shop.gddl(*command, "--code", "NOPE")
    assert (answer.status, answer.out, answer.err) == (2, "", f"{none}nothing. {remedy}")
    quarantined(shop, "CAST_FAILED", "CAST_FAILED", "CAST_FAILED", "KEY_NULL")
    answer = shop.gddl(*command, "--code", "NOPE", "--code", "KEY_NULL")
    assert (answer.status, answer.out, answer.err) == (2, "", f"{none}CAST_FAILED 3, KEY_NULL 1. {remedy}")
    answer = shop.gddl(*command, "--code", "KEY_NULL", results=NOTHING_READ)
    assert (answer.status, shop.order["options"]["action"]["codes"]) == (0, ["KEY_NULL"])


LIST = "`gddl errors list --table sales.orders`"


@pytest.mark.parametrize(
    ("rows", "again", "message", "status"),
    [
        (3, 3, f"0 of 3 accepted; 3 in quarantine again, see {LIST}", 1),
        (1200, 1, f"1,199 of 1,200 accepted; 1 in quarantine again, see {LIST}", 1),
        (2, 0, "2 of 2 accepted", 0),
        (0, 0, "nothing in quarantine", 0),
    ],
)
def test_a_replay_says_how_many_rows_were_accepted(
    shop: Shop, rows: int, again: int, message: str, status: int
) -> None:
    result = {"sales.orders": {"rows_read": rows, "quarantined": again}}
    answer = shop.gddl("errors", "replay", "--table", "sales.orders", results=result)
    assert (answer.status, answer.out.splitlines()[-1]) == (status, f"sales.orders: {message}")
    assert shop.gddl("errors", "replay", "--table", "sales.orders", "--json", results=result).status == status


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (["--failed"], "no table failed in its last run"),
        (["--late"], "no table is late"),
        (["--late", "--failed"], "no table is both late and failed"),
    ],
)
def test_status_says_that_there_is_no_such_table(shop: Shop, flags: list[str], reported: str) -> None:
    record_run(shop, "sales.orders", freshness={"commit_ts": "2024-01-02T12:00:00Z", "lag_seconds": 1.0})
    record_run(shop, "sales.lines")
    answer = shop.gddl("status", *flags)
    assert (answer.status, answer.out) == (0, f"{reported}\n")


def record_run(shop: Shop, table: str, **fields: Any) -> None:
    schema, name = table.split(".")
    result = {"table": table, "status": "succeeded", "started_at": "2024-01-02T11:00:00+00:00", **fields}
    shop.write(f"lake/_gddl/runs/{schema}/{name}/20240102T110000-aa.json", json.dumps(result))


def test_status_shows_the_last_run_of_each_table(shop: Shop) -> None:
    late = {"commit_ts": "2024-01-02T11:00:00Z", "lag_seconds": 1.0}
    record_run(shop, "sales.orders", freshness=late, main={"rows": 5}, quarantined=2)
    record_run(shop, "sales.lines", status="failed", error={"code": "X", "message": "broken"})
    answer = shop.gddl("status")
    assert answer.status == 1
    rows = {
        line.split()[0]: line
        for line in answer.out.splitlines()
        if line.startswith("sales.") and ":" not in line.split()[0]
    }
    assert rows.keys() == {"sales.orders", "sales.lines"}
    assert "1h 00m LATE" in rows["sales.orders"]
    assert "LATE" not in rows["sales.lines"]
    assert "sales.lines: [X] broken" in answer.out
    everything = {record["table"]: record for record in shop.gddl("status", "--json").records}
    assert everything["sales.orders"]["lag_seconds"] == 3600.0
    assert everything["sales.orders"]["late"] is True
    assert [record["table"] for record in shop.gddl("status", "--json", "--late").records] == ["sales.orders"]
    assert [record["table"] for record in shop.gddl("status", "--json", "--failed").records] == ["sales.lines"]
    assert [r["table"] for r in shop.gddl("status", "--json", "--table", "sales.old").records] == ["sales.old"]


def test_the_exit_status_of_status_is_that_of_the_tables_it_shows(shop: Shop) -> None:
    """Each status of the table in docs/cli.md."""
    late = {"commit_ts": "2024-01-02T11:00:00Z", "lag_seconds": 1.0}
    record_run(shop, "sales.orders", freshness=late)
    record_run(shop, "sales.lines", warnings=[{"code": "SWEEP_HELD", "message": "held"}])
    assert [one["state"] for one in shop.gddl("status", "--json").records] == ["late", "attention"]
    found = [shop.gddl("status").status]
    record_run(shop, "sales.lines", status="failed", error={"code": "X", "message": "broken"})
    found += [shop.gddl("status").status, shop.gddl("status", "--failed").status]
    assert shop.gddl("status", "--table", "sales.orders").status == 0, "the one that failed is not shown"
    shop.write("metadata/tables/bad.yaml", BAD)
    assert shop.gddl("status").status == 1, "a failed table is told first"
    found += [shop.gddl("status", "--late").status, shop.gddl("status", "--table", "sales.bad").status]
    shop.write("lake/_gddl/state/by-hand.json", "{")
    found.append(shop.gddl("status", "--table", "sales.orders").status)
    assert found == [0, 1, 1, 2, 2, 75]
    page = Path(__file__).parents[2].joinpath("docs", "cli.md").read_text()
    rows = page.partition("`gddl status` runs nothing")[2].partition("A first signal")[0].splitlines()
    assert [line.split("|")[1].strip() for line in rows if line.startswith("| ")][1:] == ["0", "1", "2", "75"]


def test_the_state_is_rebuilt_from_run_records(shop: Shop) -> None:
    late = {"commit_ts": "2024-01-02T11:00:00Z", "lag_seconds": 1.0}
    record_run(shop, "sales.lines", freshness=late, main={"rows": 5})
    shop.gddl("run", "--table", "sales.orders", "--json", results=BOTH)
    states = {record["table"]: record for record in shop.gddl("status", "--json").records}
    assert states["sales.lines"]["rows"] == 5, "what ran before anything was kept is known, too"
    assert (states["sales.orders"]["status"], states["sales.orders"]["state"]) == ("succeeded", "fresh")
    error = {"code": "X", "message": "by another scheduler"}
    record_run(shop, "sales.orders", status="failed", started_at="2024-01-02T12:00:01+00:00", error=error)
    assert shop.gddl("status", "--json", "--failed").records == []
    again = shop.gddl("status", "--rebuild", "--json", "--failed")
    assert "the state of 2 tables was rebuilt" in again.err
    assert [(record["table"], record["error"]) for record in again.records] == [
        ("sales.orders", "[X] by another scheduler")
    ]


def test_status_shows_the_metadata_as_it_is_though_it_is_kept_compiled(shop: Shop) -> None:
    cache = shop.folder / "cache"
    shop.around = replace(shop.around, environ={**shop.around.environ, "XDG_CACHE_HOME": str(cache)})
    tables = ["sales.lines", "sales.orders"]
    for _ in range(2):
        assert sorted(record["table"] for record in shop.gddl("status", "--json").records) == tables
        assert list((cache / "gddl").iterdir())
    shop.write("metadata/tables/more.yaml", GOOD.replace("sales.", "more."))
    more = ["more.lines", "more.orders", *tables]
    assert sorted(record["table"] for record in shop.gddl("status", "--json").records) == more
    shop.write("metadata/tables/bad.yaml", BAD)
    broken = shop.gddl("status", "--json")
    assert broken.status == 2
    assert sorted(record["table"] for record in broken.records) == sorted([*more, "sales.bad"])
    assert "sales.bad" in broken.err


def test_a_table_whose_row_broke_stays_with_its_last_state(shop: Shop) -> None:
    record_run(shop, "sales.bad", main={"rows": 500}, quarantined=2)
    shop.write("metadata/tables/bad.yaml", BAD)
    shown = shop.gddl("status")
    assert shown.status == 2
    row = next(line for line in shown.out.splitlines() if line.startswith("sales.bad "))
    assert "broken row" in row
    assert "sales.bad: its metadata row is invalid, so no DAG loads it; its last state: fresh" in shown.out
    assert "1 broken row" in shown.out.splitlines()[-1]
    (one,) = shop.gddl("status", "--json", "--table", "sales.bad").records
    assert (one["state"], one["last_state"], one["rows"], one["quarantined"]) == ("broken_row", "fresh", 500, 2)
    assert "FIELD_VALUE" in one["problems"][0]
    assert shop.gddl("status", "--table", "sales.orders").status == 0, "the row is none of these"
    shop.write("metadata/tables/bad.yaml", "tables:\n  - {table: ../../etc.passwd, keys: [id]}\n")
    odd = shop.gddl("status", "--json")
    assert (odd.status, "etc" in odd.out) == (2, False), "no table can have this name"


def test_validate_names_each_bad_row(shop: Shop) -> None:
    shop.write("metadata/tables/sales.yaml", GOOD.replace("30m", "2h"))  # hourly runs keep it
    good = shop.gddl("validate")
    assert (good.status, good.out) == (0, "3 tables, no problems\n")
    assert shop.gddl("validate", "--json").out == ""
    shop.write("metadata/tables/bad.yaml", BAD)
    shop.write("metadata/keys/found.yaml", "keys: {sales.gone: [id]}\n")
    bad = shop.gddl("validate")
    assert bad.status == 2
    assert "sales.gone" in bad.err
    line = "FIELD_VALUE sales.bad.delete: must be 'hard' or 'soft' (value 'sometimes') — write one of 'hard' or 'soft'"
    assert bad.out == f"{shop.folder}/metadata/tables/bad.yaml:4:36: {line}\n1 problem in the metadata\n"
    (record, unused) = shop.gddl("validate", "--json").records
    assert (unused["code"], unused["table"], unused["level"]) == ("KEYS_UNUSED", "sales.gone", "warning")
    assert record["file"] == "tables/bad.yaml"
    assert (record["line"], record["table"], record["field"]) == (4, "sales.bad", "delete")
    assert record["remedy"]


def test_debug_shows_the_traceback_and_nothing_else_does(shop: Shop) -> None:
    def broken() -> str:
        raise ValueError("a defect")

    shop.around = replace(shop.around, new_id=broken)
    quiet = shop.gddl("run")
    assert (quiet.status, quiet.err) == (1, "[INTERNAL] ValueError: a defect. Remedy: run it again with --debug.\n")
    loud = shop.gddl("run", "--debug")
    assert loud.status == 1
    assert "Traceback (most recent call last)" in loud.err


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["bogus"], "bogus"),
        (["run", "--bogus"], "--bogus"),
        (["run", "--wait", "-1"], "--wait"),
        (["errors", "bogus"], "bogus"),
        (["onboard"], "onboard"),
    ],
)
def test_wrong_arguments_are_2(
    shop: Shop, arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments, shop.around) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert shown in answer.err


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            ["run", "sales.orders"],
            "Got unexpected extra argument(s) (sales.orders); name tables with an option: --table sales.orders",
        ),
        (
            ["errors", "list", "a.b", "a.c", "d"],
            "Got unexpected extra argument(s) (a.b a.c d); name tables with an option: --table a.b --table a.c",
        ),
        (["run", "sales"], "Got unexpected extra argument(s) (sales)"),
        (["validate", "a.b"], "Got unexpected extra argument(s) (a.b)"),
        (
            ["schema", "--table", "a.b", "--format", "avro"],
            "Invalid value for '--format': 'avro' is not one of 'sql', 'json-schema'.",
        ),
    ],
)
def test_wrong_arguments_are_answered_with_what_to_write(
    shop: Shop, arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments, shop.around) == 2
    words = [word for word in capsys.readouterr().err.split() if set(word) - set("╭─╮│╰╯")]
    assert " ".join(words[words.index("Error") + 1 :]) == shown


def gddl(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airflow_gddl.cli.main", *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
    )


def test_as_a_process_of_its_own(shop: Shop) -> None:
    assert gddl("--version", cwd=shop.folder).stdout == f"gddl {__version__}\n"
    assert gddl("validate", cwd=shop.folder).stdout == "3 tables, no problems\n"
    elsewhere = gddl("validate", cwd=Path("/"), GDDL_METADATA=str(shop.folder / "metadata"))
    assert elsewhere.stdout == "3 tables, no problems\n"
    moved = gddl("status", "--json", cwd=shop.folder, GDDL_LAKE=str(shop.folder / "other"))
    assert [json.loads(line)["status"] for line in moved.stdout.splitlines()] == ["never", "never"]


def test_help_names_every_command(shop: Shop) -> None:
    shown = gddl("--help", cwd=shop.folder, COLUMNS="120").stdout
    for command in ("validate", "run", "status", "verify", "errors", "simulate", "demo"):
        assert f" {command} " in shown
    assert "\x1b" not in shown


def test_validate_warns_of_hashes_that_can_be_guessed(shop: Shop) -> None:
    row = "source: hr\ntables:\n  - {table: hr.people, keys: [id], mask: {email: hash, n: hmac}}\n"
    shop.write("metadata/tables/people.yaml", row)
    answer = shop.gddl("validate")
    assert answer.status == 0
    assert "MASK_GUESSABLE" in answer.err
    assert "'email'" in answer.err
    assert "'n'" not in answer.err
    shop.write("metadata/tables/people.yaml", row.replace("hash", "null"))
    assert "MASK_GUESSABLE" not in shop.gddl("validate").err


@pytest.mark.parametrize("option", [(), ("--failed",), ("--late", "--failed")])
def test_status_of_a_lake_that_cannot_be_read_is_unknown(option: tuple[str, ...], shop: Shop) -> None:
    closed = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    shop.around = replace(shop.around, environ={**shop.around.environ, **closed, "GDDL_LAKE": "s3://none/lake"})
    answer = shop.gddl("status", "--json", *option)
    assert answer.status == 75
    assert {(one["table"], one["state"]) for one in answer.records} == {
        ("sales.orders", "unknown"), ("sales.lines", "unknown"),
    }  # fmt: skip
    assert "the lake can't be read: [S3_UNREACHABLE]" in answer.err
    shown = shop.gddl("status", *option)
    assert (shown.status, "no table" in shown.out) == (75, False)


def test_status_of_a_damaged_record_is_unknown(shop: Shop) -> None:
    shop.gddl("run", results=BOTH)
    (record,) = (shop.lake / "_gddl/state").glob("*.json")
    record.write_bytes(b"damaged")
    answer = shop.gddl("status", "--json")
    assert (answer.status, {one["state"] for one in answer.records}) == (75, {"unknown"})
    assert "is damaged" in answer.err


def test_an_invalid_row_beside_a_valid_one_stops_itself_alone(shop: Shop) -> None:
    shop.write("metadata/tables/bad.yaml", BAD)
    answer = shop.gddl("run", "--table", "sales.orders", "--table", "sales.bad", "--json", results=BOTH)
    assert (answer.status, [one["table"] for one in answer.records]) == (2, ["sales.orders"])
    assert "tables/bad.yaml:4" in answer.err
    assert shop.gddl("run", "--table", "sales.orders", "--table", "sales.none").status == 2, "a name that no row has"


def test_validate_names_a_connection_that_jobs_refuse(shop: Shop) -> None:
    row = "{table: sales.orders, keys: [id], options: {verify_connection: CRM_DB}}"
    shop.write("metadata/tables/sales.yaml", f"source: shop\ntables:\n  - {row}\n")
    answer = shop.gddl("validate")
    assert answer.status == 0
    assert "SOURCE_CONNECTION_REFUSED" in answer.err
    assert "'CRM_DB'" in answer.err
    assert "GDDL_SOURCE_CONNECTIONS" in answer.err
    shop.around = replace(shop.around, environ={**shop.around.environ, "GDDL_SOURCE_CONNECTIONS": "CRM_DB"})
    assert "SOURCE_CONNECTION_REFUSED" not in shop.gddl("validate").err
