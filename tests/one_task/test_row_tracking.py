"""What commits to a table with row ids say of them, as Delta's protocol asks of writers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Maintain, Rebuild
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.tables.delta_log import metadata
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.replayed_log import commit_path, replayed
from tests.harness.lake import Lake, spec_of
from tests.spark.row_ids import actions_of, wrong_row_ids

TRACKED = {"delta.enableRowTracking": "true"}
PRESERVED = "delta.rowTracking.preserved"


def _infos(table: str) -> Iterator[Mapping[str, Any]]:
    """Of all commits but the one that created the table."""
    for version in range(1, DeltaTable(table).version() + 1):
        (info,) = (action["commitInfo"] for action in actions_of(table, version) if "commitInfo" in action)
        yield info


def test_commits_say_that_rows_keep_their_ids(tmp_path: Path) -> None:
    """Readers take a commit that does not say so for one that gives all rows new ids."""
    lake, spec = Lake(tmp_path), spec_of(table_properties=TRACKED, history=True)
    lake.load(spec, 6)
    lake.done(spec)
    lake.change(spec, 1, [("U", 1, "changed"), ("D", 2, None), ("I", 9, "new")])
    lake.done(spec)
    spec = replace(spec, description="a table", table_properties={**TRACKED, "owner": "a"})
    lake.change(spec, 2, [("U", 3, "changed")])
    lake.done(spec)
    lake.done(spec, JobOptions(action=Maintain()))
    table = lake.layout(spec).replica
    assert [info["operation"] for info in _infos(table) if info.get("tags") != {PRESERVED: "true"}] == []
    assert wrong_row_ids(table, spec.keys or ()) == []


def test_a_rebuild_says_that_rows_get_new_ids(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(table_properties=TRACKED)
    lake.load(spec)
    lake.done(spec)
    lake.change(spec, 1, [("U", 1, "changed")])
    lake.done(spec)
    lake.done(spec, JobOptions(action=Rebuild()))
    said = [info["tags"][PRESERVED] for info in _infos(lake.layout(spec).replica)]
    assert said.count("false") == 1, json.dumps(said)


def test_tables_without_row_ids_say_nothing(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.done(spec)
    assert [info for info in _infos(lake.layout(spec).replica) if "tags" in info] == []


NAMES = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-a",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-a",
}


@pytest.mark.parametrize("names", [{}, NAMES, {**NAMES, "delta.enableRowTracking": "false"}])
def test_a_table_whose_protocol_names_the_feature_begins_once(tmp_path: Path, names: Mapping[str, str]) -> None:
    """Spark adds the feature, and names of columns, without ids; a commit may say the highest id once."""
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.done(spec)
    table = lake.layout(spec).replica
    _support(table, names)
    spec = replace(spec, table_properties=TRACKED)
    lake.change(spec, 1, [("U", 1, "changed")])
    lake.done(spec)
    domains = [
        [a for a in actions_of(table, n) if "domainMetadata" in a] for n in range(DeltaTable(table).version() + 1)
    ]
    assert max(map(len, domains)) == 1
    assert wrong_row_ids(table, spec.keys or ()) == []
    held = replayed(Storage(), table)
    assert held is not None
    assert names.items() <= {**held.properties, "delta.enableRowTracking": "false"}.items()
    assert all(add["baseRowId"] is not None for add in held.files.values())
    assert [info.get("tags") for info in _infos(table)][-1] == {PRESERVED: "true"}


def _support(table: str, properties: Mapping[str, str]) -> None:
    """Commit what `ALTER TABLE ... SET TBLPROPERTIES ('delta.feature.rowTracking' = 'supported')` does."""
    log = replayed(Storage(), table)
    assert log is not None
    version = log.version + 1
    named = ["appendOnly", "invariants", "domainMetadata", "rowTracking"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": named}
    info = {"timestamp": 0, "operation": "ADD FEATURE", "operationParameters": {}}
    actions = [{"commitInfo": info}, {"protocol": protocol}, metadata(log, changed=properties)]
    Path(commit_path(table, version)).write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_files_of_writers_that_write_null_ids_get_ids(tmp_path: Path) -> None:
    """`deltalake` names the fields without a value."""
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"id": [1, 2]}))
    (add,) = (action["add"] for action in actions_of(table, 0) if "add" in action)
    assert add["baseRowId"] is None
    Tables(Storage(), lambda: datetime.now(UTC)).set_properties(table, TRACKED)
    (add,) = (action["add"] for action in actions_of(table, 1) if "add" in action)
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (0, 1)
