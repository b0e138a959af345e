"""What a batch remembers of Delta logs for the next one: it saves reads, and a copy that doesn't fit is not used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Erase, HandleErrors, Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import Expectation
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.stores import Storage
from spark_jobs.ledger.claim import Claim
from tests.harness.lake import Lake, spec_of

SPEC = spec_of()
Logs = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table with a load and two batches of changes, one of them with a delete."""
    made = Lake(tmp_path)
    made.load(SPEC)
    made.done(SPEC)
    for number, changes in enumerate(([("U", 1, "one"), ("D", 2, None)], [("I", 7, "seven")]), 1):
        made.change(SPEC, number, changes)
        made.done(SPEC)
    return made


def stored(lake: Lake, spec: TableSpec = SPEC) -> Path:
    return Path(lake.layout(spec).state, "logs.json")


def next_batch(lake: Lake) -> None:
    """Another change, and all rows as they have to be."""
    lake.change(SPEC, 9, [("U", 0, "zero"), ("I", 8, "eight")])
    assert lake.done(SPEC).changes_written == 2
    assert lake.replica(SPEC) == {0: "zero", 1: "one", 7: "seven", 8: "eight"}


def test_versions_are_those_of_the_ledger(lake: Lake) -> None:
    found, ledger = json.loads(stored(lake).read_text()), lake.ledger(SPEC)
    logs = found["logs"]
    assert {name: log["version"] for name, log in logs.items() if log} == dict(ledger.state.delta_versions)
    last = ledger.last_commit()
    assert last is not None
    assert (found["planned_at"], logs["errors"]) == (last.plan.planned_at, None)
    next_batch(lake)


def _replaced(log: Logs, **fields: Any) -> Logs:
    return {**log, "replica": {**log["replica"], **fields}}


WRONG: dict[str, Callable[[Logs], object]] = {
    "none": lambda _: {},
    "no object": lambda _: ["replica"],
    "other fields": lambda logs: {**logs, "replica": {"version": logs["replica"]["version"]}},
    "unknown fields": lambda logs: _replaced(logs, later_release=1),
    "older version": lambda logs: _replaced(logs, version=logs["replica"]["version"] - 1),
    "later version": lambda logs: _replaced(logs, version=logs["replica"]["version"] + 1),
    "other commit": lambda logs: _replaced(logs, digest="0" * 64, files=[]),
    "no commit": lambda logs: _replaced(logs, digest="", files=[]),
    "errors unknown": lambda logs: {name: log for name, log in logs.items() if name != "errors"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_copy_that_does_not_fit_is_not_used(lake: Lake, wrong: str) -> None:
    path = stored(lake)
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "logs": WRONG[wrong](found["logs"])}))
    next_batch(lake)


@pytest.mark.parametrize("planned_at", [None, 3, "2024-01-01T00:00:00.000000+00:00"])
def test_a_copy_of_another_batch_is_not_used(lake: Lake, planned_at: object) -> None:
    """Also of one of this number, that was not committed: a rebuild may have the number since."""
    found = json.loads(stored(lake).read_text())
    stored(lake).write_text(json.dumps({"planned_at": planned_at, "logs": _replaced(found["logs"], files=[])}))
    next_batch(lake)


def test_a_rebuild_forgets_them(lake: Lake) -> None:
    """They have bounds of values that it may have masked."""
    lake.done(SPEC, JobOptions(action=Rebuild()))
    assert not stored(lake).exists()
    next_batch(lake)


def test_rows_that_a_reload_quarantines_are_found(lake: Lake) -> None:
    """The table of errors is made by a commit of the ledger that is no batch."""
    strict = with_expressions(spec_of(expect={"no_seven": Expectation(rule="v <> 'seven'")}))
    lake.done(strict, JobOptions(action=Reload(confirmed=True)))
    lake.change(SPEC, 3, [("U", 0, "again")])
    lake.done(SPEC)
    assert lake.done(SPEC, JobOptions(action=HandleErrors(mode="replay"))).rows_read == 1
    assert lake.replica(SPEC)[7] == "seven"


@pytest.mark.parametrize("text", ["", "{", "null", "\0"])
def test_a_damaged_copy_is_not_used(lake: Lake, text: str) -> None:
    stored(lake).write_text(text)
    next_batch(lake)


def test_commits_of_others_are_read(lake: Lake) -> None:
    """Compacted since by another writer, whose files are the current ones."""
    lake.change(SPEC, 3, [("U", 7, "seven")])
    lake.done(SPEC)
    for path in (lake.layout(SPEC).replica, lake.layout(SPEC).changes):
        DeltaTable(path).optimize.compact()
    next_batch(lake)


def test_an_older_copy_of_a_table_is_found(lake: Lake, tmp_path: Path) -> None:
    """Restored from a backup: the log lacks the version that the ledger knows."""
    replica = lake.layout(SPEC).replica
    shutil.copytree(replica, tmp_path / "backup")
    lake.change(SPEC, 4, [("I", 9, "nine")])
    lake.done(SPEC)
    shutil.rmtree(replica)
    shutil.copytree(tmp_path / "backup", replica)
    lake.change(SPEC, 5, [("I", 10, "ten")])
    error = lake.result(SPEC).error
    assert error is not None
    assert error.code == "TABLE_DAMAGED"


def test_a_table_that_was_made_again_is_found(lake: Lake) -> None:
    """As many commits as the ledger knows, none of them ours."""
    replica, versions = lake.layout(SPEC).replica, lake.ledger(SPEC).state.delta_versions
    rows = DeltaTable(replica).to_pyarrow_table()
    shutil.rmtree(replica)
    for _ in range(versions["replica"] + 1):
        write_deltalake(replica, rows, mode="overwrite")
    assert DeltaTable(replica).version() == versions["replica"]
    next_batch(lake)


def test_an_erased_key_is_not_remembered(lake: Lake) -> None:
    spec = spec_of("people")
    lake.load(spec)
    lake.done(spec)
    lake.change(spec, 1, [("I", 4711, "x")])
    lake.done(spec)
    assert "4711" in stored(lake, spec).read_text()
    lake.done(spec, JobOptions(action=Erase(key={"id": "4711"}, asked_by="eve")))
    assert not stored(lake, spec).exists()
    lake.change(spec, 2, [("U", 1, "y"), ("I", 4711, "again")])
    assert lake.done(spec).error is None
    assert 4711 not in lake.replica(spec) or lake.replica(spec)[4711] == "again"


def test_a_claim_that_was_taken_over_is_lost_however_its_successors_ended(lake: Lake) -> None:
    """The successor's file alone does not say so: it is gone once that one has a successor, too."""
    state, first = lake.layout(SPEC).state, lake.table_run(SPEC).claim()
    with first:
        first.check()
        folder = Path(state, "claims")
        (mine,) = folder.glob("*.json")
        later = mine.with_name(f"{int(mine.stem) + 2:020d}.json")
        later.write_bytes(mine.read_bytes().replace(b'"run"', b'"other"'))
        mine.unlink()
        with pytest.raises(Exception, match="CLAIM_LOST"):
            first.check()
    assert not mine.exists() or b'"released":true' in mine.read_bytes().replace(b" ", b"")
    later.unlink()
    Claim.acquire(Storage(), state, "next", lake.table_run(SPEC).runtime.clock).release()
