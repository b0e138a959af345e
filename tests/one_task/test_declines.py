"""Tables that the engine must not touch: it declines them with a reason, and leaves them as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.stores import Storage
from spark_jobs.batch.totals import Declined, TableOutcome
from spark_jobs.tables import deletion_vectors
from tests.harness.asked import options_of
from tests.harness.lake import TIER, Lake, spec_of
from tests.scenarios.delta_log import commits

SPEC = spec_of()


def grown(tmp_path: Path, **fields: Any) -> Lake:
    """A living table, and a change that waits."""
    lake = Lake(tmp_path, **fields)
    lake.load(SPEC)
    done = Lake(tmp_path).run(SPEC)
    assert isinstance(done, TableOutcome)
    assert done.result.status == "succeeded", done.result.error
    lake.change(SPEC, 1, [("U", 1, "new"), ("D", 2, None)])
    return lake


def add_commit(table: str, *actions: Mapping[str, Any]) -> None:
    """By hand, as another writer would."""
    log = Path(table, "_delta_log")
    number = commits(Storage(), table)
    lines = [json.dumps(a) for a in ({"commitInfo": {"operation": "test"}}, *actions)]
    (log / f"{number:020d}.json").write_text("\n".join(lines))


def meta(table: str, **changed: Any) -> dict[str, Any]:
    for commit in sorted(Path(table, "_delta_log").glob("*.json"), reverse=True):
        for line in commit.read_text().splitlines():
            if found := json.loads(line).get("metaData"):
                return {"metaData": {**found, **changed}}
    raise AssertionError(table)


def protocol(reader: list[str], writer: list[str]) -> dict[str, Any]:
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": reader, "writerFeatures": [*reader, *writer]}}


FEATURES = {
    "typeWidening": (["typeWidening"], []),
    "columnMapping": (["columnMapping"], []),
    "checkConstraints": ([], ["checkConstraints"]),
    "clustering": ([], ["clustering", "domainMetadata"]),
    "somethingNew": ([], ["somethingNew"]),
    "somethingNewForReaders": (["somethingNewForReaders"], []),
}


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("table", ["replica", "changes"])
def test_unknown_table_feature_is_declined(feature: str, table: str, tmp_path: Path) -> None:
    lake = grown(tmp_path)
    path = getattr(lake.layout(SPEC), table)
    add_commit(path, protocol(*FEATURES[feature]))
    before = commits(Storage(), lake.layout(SPEC).replica)
    done = lake.run(SPEC)
    assert isinstance(done, Declined)
    assert feature in done.reason or "deltalake can't open it" in done.reason
    assert commits(Storage(), lake.layout(SPEC).replica) == before


SETTINGS = {
    "delta.columnMapping.mode": "name",
    "delta.constraints.positive": "id > 0",
    "delta.appendOnly": "true",
    "delta.rowTrackingSuspended": "true",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_unsupported_property_is_declined(setting: str, tmp_path: Path) -> None:
    lake = grown(tmp_path)
    path = lake.layout(SPEC).replica
    settings = {**meta(path)["metaData"]["configuration"], setting: SETTINGS[setting]}
    add_commit(path, meta(path, configuration=settings))
    done = lake.run(SPEC)
    assert isinstance(done, Declined)
    assert setting in done.reason or "deltalake can't open it" in done.reason
    assert commits(Storage(), path) == 3, "it was written to"


def test_not_null_column_is_declined(tmp_path: Path) -> None:
    lake = grown(tmp_path)
    path = lake.layout(SPEC).replica
    schema = json.loads(meta(path)["metaData"]["schemaString"])
    schema["fields"][1]["nullable"] = False
    add_commit(path, meta(path, schemaString=json.dumps(schema)))
    done = lake.run(SPEC)
    assert isinstance(done, Declined)
    assert "null" in done.reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"table_properties": {"delta.enableDeletionVectors": "true"}}, "delta.enableDeletionVectors"),
    ],
)
def test_unsupported_metadata_is_declined(fields: Any, reason: str, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(**fields)
    lake.load(spec)
    done = lake.run(spec)
    assert isinstance(done, Declined)
    assert reason in done.reason
    assert not Path(lake.layout(spec).replica).exists()


def test_deletion_vectors_are_declined_by_a_job_without_their_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_vectors, "are_known", lambda: False)
    lake = Lake(tmp_path, replace(TIER, deletion_vectors=True))
    lake.load(SPEC)
    done = lake.run(SPEC)
    assert isinstance(done, Declined)
    assert "deletion vectors" in done.reason


@pytest.mark.parametrize("action", ["run", "verify"])
def test_table_over_the_size_limit_is_declined(action: Any, tmp_path: Path) -> None:
    if action == "run":
        lake = grown(tmp_path, tier=replace(TIER, task_max_bytes=500))
    else:
        lake = grown(tmp_path)
        lake.run(SPEC)
        lake = replace(lake, tier=replace(TIER, task_max_bytes=500))
    done = lake.run(SPEC, options_of(action))
    assert isinstance(done, Declined)
    assert "task_max_bytes" in done.reason


def test_supported_table_is_accepted(tmp_path: Path) -> None:
    """The tables above but for what was done to them."""
    lake = grown(tmp_path)
    done = lake.run(SPEC)
    assert isinstance(done, TableOutcome)
    assert (done.result.tasks, done.result.commit) == ("one", "direct")
    assert lake.replica(SPEC) == {0: "load 0", 1: "new"}


def test_first_batch_over_the_size_limit_is_declined(tmp_path: Path) -> None:
    """There is no table yet that would be too large."""
    lake = Lake(tmp_path, replace(TIER, task_max_bytes=100))
    lake.load(SPEC)
    done = lake.run(SPEC)
    assert isinstance(done, Declined)
    assert done.reason.startswith("the batch has ")
