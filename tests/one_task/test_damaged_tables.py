"""Each kind of damage of each table, met by each command: right, or one message whose command makes the rows right."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Rebuild, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.runtime.state.table_status import judge
from airflow_gddl.runtime.table_directory import TableRow
from spark_jobs.tables import delta_log
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.damages import DAMAGES, TABLES, UNSEEN
from tests.harness.lake import TIER, Lake, read, spec_of

SPEC = spec_of(history=True)
BATCHES = 5
LANDS = 9
"""Number of the file that waits when the lake is damaged."""
OPTIONS = {
    "run": options_of("run", full_listing=True),
    "scheduled": options_of("run"),
    "verify": options_of("verify"),
    "rebuild": options_of("rebuild", full_listing=True),
    "reload": options_of("reload", full_listing=True),
    "maintain": options_of("maintain"),
    "replay": options_of("errors_replay", full_listing=True),
    "errors": options_of("errors_list"),
    "dismiss": options_of("errors_dismiss", codes=("OP_UNKNOWN",), reason="lost"),
    "explain": options_of("explain", key={"id": "1"}),
    "erase": options_of("erase", key={"id": "999"}),
}
_CORE = ("run", "verify", "reload")
_OTHERS = [command for command in OPTIONS if command not in _CORE]
_READS_A_PART = ("scheduled", "errors", "dismiss", "explain", "erase")
"""They look at some of the tables alone: what they don't need may be damaged."""
_REMEDIES = {
    "gddl rebuild --table s.t": JobOptions(action=Rebuild(), full_listing=True),
    "gddl reload --from-files --table s.t": JobOptions(action=Reload(), full_listing=True),
}


ROW = TableRow(table="s.t", source="s", tier="small", priority="normal", freshness=300, grace=300)
NOW = time.time()
WITH_VECTORS = ("replica", "history")
"""Tables whose files have vectors here."""
CASES = [(kind, table) for kind in DAMAGES for table in TABLES if kind != "vector_gone" or table in WITH_VECTORS]


def _change(lake: Lake, number: int) -> None:
    """An update, an insert, a delete of an earlier insert, and a row that is none."""
    rows: list[tuple[str, int, str | None]] = [("U", 1, f"u{number}"), ("I", 100 + number, "new"), ("X", 7, "bad")]
    rows += [("D", 100 + number - 2, None)] if number > 2 else []
    lake.change(SPEC, number, rows)


def _lake(root: Path, *, vectors: bool) -> Lake:
    lake = Lake(root, replace(TIER, deletion_vectors=vectors))
    lake.load(SPEC, 8)
    for number in range(1, BATCHES + 1):
        _change(lake, number)
        lake.done(SPEC)
    return lake


@dataclass(frozen=True)
class Whole:
    """Lakes before their damage, which ledgers know by the paths of their files.

    Attributes:
        kept: copies of the lakes, by whether they have deletion vectors.
    """

    at: Path
    kept: Mapping[bool, Path]

    def lake(self, *, vectors: bool = False) -> Lake:
        """As it was, with a file that waits."""
        shutil.rmtree(self.at)
        shutil.copytree(self.kept[vectors], self.at)
        lake = Lake(self.at, replace(TIER, deletion_vectors=vectors))
        _change(lake, LANDS)
        return lake


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    at, kept = tmp_path_factory.mktemp("lakes") / "at", {}
    for vectors in (False, True):
        kept[vectors] = at.with_name(f"kept-{vectors}")
        shutil.rmtree(at, ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delta_log, "COMMITS_PER_CHECKPOINT", 3)
            _lake(at, vectors=vectors)
        shutil.copytree(at, kept[vectors])
    return Whole(at, kept)


def contents(lake: Lake, spec: TableSpec = SPEC) -> Mapping[str, list[Any]]:
    """Rows of all tables, without what tells the batch."""
    layout = lake.layout(spec)
    own = ("id", "v", "valid_from", "valid_to", "code", "record", "resolved_at")
    found = {}
    for name in TABLES:
        rows = [row for row in read(getattr(layout, name)) if not row.get("resolved_at")]
        rows = [row for row in rows if (row.get("_gddl") or {}).get("generation") != 0]
        kept = [
            {k: v for k, v in row.items() if k in own and (k, name) != ("id", "errors")}
            | {"seq": (row.get("_gddl") or {}).get("sequence")}
            for row in rows
        ]
        found[name] = sorted(map(str, kept))
    return found


@pytest.fixture(scope="module")
def right(whole: Whole) -> Mapping[str, list[Any]]:
    """After the file that waits was loaded."""
    lake = whole.lake()
    lake.done(SPEC, OPTIONS["run"])
    return contents(lake)


def remedied(lake: Lake, found: JobResult) -> None:
    """Run the one command that the message names; it has to succeed."""
    assert found.error is not None
    assert found.error.code not in ("UNEXPECTED", "JAVA_MISSING"), found.error
    (command,) = re.findall(r"`(gddl [^`]*)`", found.error.message)
    lake.done(SPEC, _REMEDIES[command])


def assert_status_says(found: JobResult) -> None:
    """`gddl status` shows the table as failed, with the whole remedy."""
    status = judge(ROW, TableRecord().after(found, NOW), NOW)
    assert status.state == "failed"
    assert found.error is not None
    assert status.record.error is not None
    assert status.record.error.endswith(found.error.message.rpartition("Remedy: ")[2])


@pytest.mark.parametrize("command", [*_CORE, *(pytest.param(one, marks=pytest.mark.wide) for one in _OTHERS)])
@pytest.mark.parametrize(("kind", "table"), CASES)
def test_damage_is_harmless_or_named_with_its_repair(
    kind: str, table: str, command: str, whole: Whole, right: Mapping[str, list[Any]]
) -> None:
    lake = whole.lake(vectors=kind == "vector_gone")
    DAMAGES[kind](Path(getattr(lake.layout(SPEC), table)))
    found = lake.result(SPEC, OPTIONS[command])
    if found.error is not None:
        assert found.error.code == "TABLE_DAMAGED", found.error
        assert Path(getattr(lake.layout(SPEC), table)).name in found.error.message
        if command == "run":
            assert_status_says(found)
        remedied(lake, found)
    elif command in _READS_A_PART:
        return
    lake.done(SPEC, OPTIONS["run"])
    assert contents(lake) == right
    assert lake.done(SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize("command", ["run", "reload", "replay"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", UNSEEN)
def test_damage_within_files_is_named_with_its_repair(
    kind: str, table: str, command: str, whole: Whole, right: Mapping[str, list[Any]]
) -> None:
    """Also by what reads the files second: a batch that has begun, or the repair itself."""
    lake = whole.lake()
    UNSEEN[kind](Path(getattr(lake.layout(SPEC), table)))
    for one in (command, "run"):
        found = lake.result(SPEC, OPTIONS[one])
        if found.error is not None:
            assert found.error.code == "TABLE_DAMAGED", found.error
            remedied(lake, found)
    lake.done(SPEC, OPTIONS["run"])
    assert contents(lake) == right


def _newest_commit(state: Path) -> Path:
    return max((state / "commits").iterdir())


def _ledger_cut(state: Path) -> None:
    commit = _newest_commit(state)
    commit.write_bytes(commit.read_bytes()[:-20])


LEDGERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "gone": (shutil.rmtree, "LEDGER_MISSING"),
    "newest_commit_gone": (lambda state: _newest_commit(state).unlink(), "LEDGER_BEHIND"),
    "newest_commit_cut": (_ledger_cut, "LEDGER_DAMAGED"),
}


@pytest.mark.parametrize("command", ["run", "verify", "reload", "rebuild"])
@pytest.mark.parametrize("kind", LEDGERS)
def test_damaged_ledger_is_named_with_its_repair(
    kind: str, command: str, whole: Whole, right: Mapping[str, list[Any]]
) -> None:
    lake = whole.lake()
    state = Path(lake.layout(SPEC).state)
    damage, code = LEDGERS[kind]
    damage(state)
    found = lake.result(SPEC, OPTIONS[command])
    if found.error is not None:
        assert found.error.code == code, found.error
        if f"delete {state}," in found.error.message:
            shutil.rmtree(state)
        remedied(lake, found)
    lake.done(SPEC, OPTIONS["run"])
    assert contents(lake) == right


@pytest.mark.parametrize("table", TABLES)
def test_scheduled_runs_find_a_log_without_its_newest_commit(table: str, whole: Whole) -> None:
    """Before they write the next one in its place."""
    lake = whole.lake()
    DAMAGES["newest_commit_gone"](Path(getattr(lake.layout(SPEC), table)))
    before = contents(lake)
    for _ in range(2):
        error = lake.result(SPEC).error
        assert error is not None
        assert error.code == "TABLE_DAMAGED"
    assert contents(lake) == before


def test_reload_of_a_damaged_change_table_asks_where_landed_files_are_gone(whole: Whole) -> None:
    """What they gave is in the damaged files alone. Until a user says so, nothing is changed."""
    lake = whole.lake()
    gone = lake.landing(SPEC) / "20240101-000000002.parquet"
    gone.rename(gone.with_name("kept"))
    changes = Path(lake.layout(SPEC).changes)
    DAMAGES["data_file_gone"](changes)
    for name in ("rebuild", "reload"):
        error = lake.result(SPEC, options_of(name)).error
        assert error is not None
        assert error.code == ("RELOAD_UNCONFIRMED" if name == "reload" else "TABLE_DAMAGED"), error
        assert "is gone" in error.message
        assert (gone.name in error.message) == (name == "reload")
    lake.done(SPEC, JobOptions(action=Reload(confirmed=True)))
    assert 102 not in lake.replica(SPEC)
    assert lake.done(SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_damage_is_reported_by_each_run_until_it_is_repaired(whole: Whole) -> None:
    """Scheduled runs look once a day, and again until the tables are whole."""
    lake = whole.lake()
    DAMAGES["data_file_gone"](Path(lake.layout(SPEC).changes))

    def tomorrow() -> datetime:
        return datetime.now(UTC) + timedelta(days=2)

    errors = [lake.result(SPEC, clock=tomorrow).error for _ in range(2)]
    assert [error.code for error in errors if error is not None] == ["TABLE_DAMAGED"] * 2


@pytest.mark.parametrize(
    ("kind", "table"), [("data_file_gone", "replica"), ("commit_gone", "changes"), ("commit_cut", "replica")]
)
def test_repairs_work_in_both_places(
    kind: str, table: str, engine: LocalPort, whole: Whole, right: Mapping[str, list[Any]]
) -> None:
    lake = replace(whole.lake(), port=engine)
    DAMAGES[kind](Path(getattr(lake.layout(SPEC), table)))
    remedied(lake, lake.result(SPEC, OPTIONS["run"]))
    lake.done(SPEC, OPTIONS["run"])
    assert contents(lake) == right
