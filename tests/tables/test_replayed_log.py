"""Logs as they are read here, against `deltalake`'s reading of the same logs."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.stores import Storage
from spark_jobs.rules.arrays import schema_of
from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.replayed_log import DamagedLogError, ReplayedLog, commit_path, continued, replayed
from spark_jobs.tables.snapshots import TableSnapshot
from tests.harness.replayed_files import log_of

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a b", "z%2F/ü"]),
    "whole": (pa.int64(), [-(2**62), 0, 7]),
    "small": (pa.int16(), [-3, 0, 3]),
    "fraction": (pa.float64(), [-1.5, 0.25, 1e30]),
    "exact": (pa.decimal128(38, 6), [Decimal("12345678901234567890.123456"), Decimal(0), Decimal("0.000001")]),
    "day": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), datetime(2024, 2, 29, 3, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime.fromisoformat(text) for text in ("2024-02-29 01:02:03", "2024-03-01")]),
    "flag": (pa.bool_(), [True, False]),
}


def assert_equal_to_deltalake(path: str, version: int | None = None) -> None:
    """Files, sizes, partitions, transactions and metadata; bounds wherever `deltalake` has them."""
    log, table = log_of(path, version), DeltaTable(path, version=version)
    theirs = {unquote(a["path"]): a for a in pa.table(table.get_add_actions()).to_pylist()}
    snapshot = TableSnapshot(path, log, schema_of(log.schema), Storage())
    assert {f.path for f in snapshot.files} == theirs.keys()
    for file in snapshot.files:
        action = theirs[file.path]
        assert (file.size, dict(file.values)) == (action["size_bytes"], action.get("partition") or {})
        for ours, stated in ((file.low, action.get("min")), (file.high, action.get("max"))):
            known = {name: value for name, value in (stated or {}).items() if value is not None}
            assert {name: ours.get(name) for name in known} == known
    metadata, protocol = table.metadata(), table.protocol()
    assert (log.version, log.properties) == (table.version(), dict(metadata.configuration))
    assert (list(log.partition_by), log.description) == (metadata.partition_columns, metadata.description)
    assert log.reader_features == set(protocol.reader_features or ())
    assert log.writer_features == set(protocol.writer_features or ())
    assert json.loads(log.schema) == json.loads(table.schema().to_json())


@pytest.mark.parametrize("name", VALUES)
def test_bounds_and_partitions_have_their_types(name: str, tmp_path: Path) -> None:
    kind, values = VALUES[name]
    rows = pa.table({"id": pa.array(range(len(values))), name: pa.array(values, kind)})
    plain, parted = str(tmp_path / "plain"), str(tmp_path / "parted")
    write_deltalake(plain, rows)
    write_deltalake(parted, rows, partition_by=[name])
    for path in (plain, parted):
        assert_equal_to_deltalake(path)
        DeltaTable(path).create_checkpoint()
        write_deltalake(path, rows, mode="append")
        assert_equal_to_deltalake(path)


STEPS = st.lists(st.sampled_from(["append", "overwrite", "delete", "compact", "checkpoint", "property"]), max_size=9)


@given(steps=STEPS, data=st.data())
def test_any_history_reads_as_deltalake_reads_it(
    steps: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From the start, and from what was known of any earlier version."""
    path = str(tmp_path_factory.mktemp("history"))
    write_deltalake(path, _rows(0), partition_by=["p"])
    logs = [log_of(path)]
    for number, step in enumerate(steps, 1):
        _take(path, step, number)
        logs.append(log_of(path))
        assert_equal_to_deltalake(path)
    known = data.draw(st.sampled_from(logs))
    assert_equal_to_deltalake(path, known.version)
    ended = continued(Storage(), path, _stored(known)) if known.digest else (log_of(path), [])
    assert ended is not None
    newest, commits = ended
    assert len(commits) == (newest.version - known.version if known.digest else 0)
    assert _said(newest) == _said(logs[-1])


def _said(log: ReplayedLog) -> list[object]:
    """What a commit and a checkpoint say alike: a checkpoint has no nulls."""
    files = {path: {k: v for k, v in add.items() if v is not None} for path, add in log.files.items()}
    metadata = {name: value for name, value in log.metadata.items() if value is not None}
    return [log.version, files, metadata, log.protocol, log.transactions]


def _rows(number: int) -> pa.Table:
    return pa.table({"id": [number, number + 100], "p": [number % 2, None], "v": [f"v{number}", None]})


def _take(path: str, step: str, number: int) -> None:
    table = DeltaTable(path)
    if step in ("append", "overwrite"):
        write_deltalake(path, _rows(number), mode=step)
    elif step == "delete":
        table.delete(f"id < {number}")
    elif step == "compact":
        table.optimize.compact()
    elif step == "checkpoint":
        table.create_checkpoint()
    else:
        table.alter.set_table_properties({"delta.logRetentionDuration": f"interval {number} days"})


def _stored(log: ReplayedLog) -> ReplayedLog:
    stored = log.to_json()
    assert stored is not None
    return ReplayedLog.of_json(json.loads(json.dumps(stored)))


def test_another_table_in_its_place_is_not_continued(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, _rows(0))
    write_deltalake(path, _rows(1), mode="append")
    known = log_of(path)
    shutil.rmtree(path)
    assert continued(Storage(), path, known) is None
    for number in range(3):
        write_deltalake(path, _rows(number), mode="append")
    assert continued(Storage(), path, known) is None
    assert_equal_to_deltalake(path)


@pytest.mark.parametrize(
    "harm",
    [Path.unlink, *(partial(Path.write_text, data=text) for text in ("{", '"add"', '{"add": 1}'))],
    ids=["gone", "cut", "no action", "no file"],
)  # fmt: skip
def test_a_damaged_log_is_declined(harm: Any, tmp_path: Path) -> None:
    path = str(tmp_path)
    for number in range(3):
        write_deltalake(path, _rows(number), mode="append")
    harm(Path(commit_path(path, 1)))
    with pytest.raises(DamagedLogError, match="log can't be read"):
        replayed(Storage(), path)


def test_a_folder_without_a_table_has_no_log(tmp_path: Path) -> None:
    assert replayed(Storage(), str(tmp_path / "none")) is None


def test_a_value_that_its_partition_cannot_have_is_declined(tmp_path: Path) -> None:
    path = str(tmp_path)
    write_deltalake(path, pa.table({"id": [1], "p": [1]}), partition_by=["p"])
    commit = Path(commit_path(path, 0))
    commit.write_text(commit.read_text().replace('"partitionValues":{"p":"1"}', '"partitionValues":{"p":"one"}'))
    log = log_of(path)
    with pytest.raises(DeclinedError, match="'one' of partition column p"):
        _ = TableSnapshot(path, log, schema_of(log.schema), Storage()).files
