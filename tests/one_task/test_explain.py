"""`explain` on the engine without Spark: what is answered of a key, what is refused, and that nothing is written."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Erase, Explain, Rebuild
from airflow_gddl.contract.layout import join, result_name
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.run_results import ResultStore
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write


def asked(limit: int = 100, **key: str) -> JobOptions:
    return JobOptions(action=Explain(key=key or {"": "1"}, limit=limit))


def filled(root: Path, row: TableSpec) -> Lake:
    """Key 1 is loaded, changed, changed by a late file, and has a bad row; key 2 has nothing but its load."""
    lake = Lake(root)
    lake.load(row)
    lake.change(row, 1, [("U", 1, "a"), ("?", 1, "bad"), ("?", 2, "bad")])
    lake.done(row)
    lake.change(row, 3, [("U", 1, "c")])
    lake.done(row)
    lake.change(row, 2, [("U", 1, "b")])
    lake.done(row)
    return lake


def shown(details: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("op", "generation", "sequence", "batch_id", "state", "decided_by")
    return [(Path(c["source_file"]).name, *(c[name] for name in names)) for c in details["changes"]]


def error_of(lake: Lake, row: TableSpec, options: JobOptions) -> str:
    found = lake.run(row, options)
    assert isinstance(found, TableOutcome)
    assert found.result.status == "failed"
    assert found.result.error is not None
    return found.result.error.message


def test_changes_are_listed_in_order_with_the_resulting_row(tmp_path: Path) -> None:
    row = spec_of()
    lake = filled(tmp_path, row)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    result = lake.done(row, asked())
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before, "nothing is written"
    details = result.details
    assert shown(details) == [
        ("LOAD00000001.parquet", "R", 1, None, "000000000001", "superseded", ""),
        ("20240101-000000001.parquet", "U", 1, 100, "000000000002", "superseded", "sequence"),
        ("20240101-000000002.parquet", "U", 1, 200, "000000000004", "late", "sequence"),
        ("20240101-000000003.parquet", "U", 1, 300, "000000000003", "winner", "sequence"),
    ]
    assert (details["keys"], details["outcome"], details["verdict"]) == (['{"id": "1"}'], "present", "equal")
    assert [(r["record"], r["batch_id"]) for r in details["replica"]] == [
        ('{"id":1,"v":"c","seq":300}', "000000000003")
    ]
    assert (details["tombstone"], details["left_out"], details["batch_unfinished"]) == (None, 0, False)
    quarantine = details["quarantine"]
    assert (quarantine["searched"], quarantine["unresolved"]) == (2, 2)
    assert [(r["code"], r["record"]) for r in quarantine["records"]] == [
        ("OP_UNKNOWN", '{"Op":"?","seq":101,"id":1,"v":"bad"}')
    ]


def test_deleted_row_shows_its_tombstone(tmp_path: Path) -> None:
    row = spec_of()
    lake = filled(tmp_path, row)
    lake.change(row, 4, [("D", 1, None)])
    lake.done(row)
    details = lake.done(row, asked(id="01")).details
    assert (details["outcome"], details["verdict"], details["replica"]) == ("deleted", "equal", [])
    assert (details["tombstone"]["sequence"], details["tombstone"]["op"]) == (400, "D")


def test_row_missing_in_a_reload_is_swept(tmp_path: Path) -> None:
    row = spec_of(sweep_limit=1.0, settle="0s")
    lake = Lake(tmp_path)
    lake.load(row)
    lake.done(row)
    lake.load(row, 1)
    lake.done(row)
    details = lake.done(row, asked()).details
    assert (details["outcome"], details["generation"], details["swept"], details["replica"]) == ("swept", 2, 2, [])
    assert [change["state"] for change in details["changes"]] == ["swept"]


def test_omitted_changes_are_counted(tmp_path: Path) -> None:
    row = spec_of()
    details = filled(tmp_path, row).done(row, asked(limit=2)).details
    assert [change["sequence"] for change in details["changes"]] == [200, 300]
    assert (details["left_out"], details["verdict"]) == (2, None)


def test_masked_key_is_given_as_source_value_and_shown_masked(tmp_path: Path) -> None:
    row = spec_of(mask={"id": "hash", "v": "null"})
    details = filled(tmp_path, row).done(row, asked()).details
    hashed = hashlib.sha256(b"1").hexdigest()
    assert details["keys"] == [f'{{"id": "{hashed}"}}']
    assert details["replica"][0]["record"] == f'{{"id":"{hashed}","v":null,"seq":300}}'
    assert [r["record"] for r in details["quarantine"]["records"]] == [
        f'{{"Op":"?","seq":101,"id":"{hashed}","v":null}}'
    ]


def test_a_composite_key_is_explained_when_it_is_named_whole(tmp_path: Path) -> None:
    row = replace(spec_of(), keys=("id", "v"))
    lake = filled(tmp_path, row)
    details = lake.done(row, asked(V="b", id="1")).details
    assert [(change["op"], change["state"]) for change in details["changes"]] == [("U", "winner")]
    message = error_of(lake, row, asked())
    assert "[KEY_INVALID] the key of s.t is id, v, not a value alone (s.t)." in message
    assert "name the whole key: --key id=… --key v=…" in message


@pytest.mark.parametrize(
    ("kind", "text", "remedy"),
    [
        (pa.int64(), "99999999999999999999", "a whole number from -9223372036854775808 to 9223372036854775807"),
        (pa.decimal128(4, 2), "123.45", "a number of at most 2 digits before the point and 2 after it"),
        (pa.float64(), "NaN", "a fraction, NaN and infinity can't be named"),
        (pa.bool_(), "yes", "with true or false"),
        (pa.date32(), "29.2.2024", "a date such as 2024-02-29"),
        (pa.timestamp("us", "UTC"), "today", "a time such as 2024-02-29T12:00:00Z"),
        (pa.binary(), "x", "keys of type binary can't be named"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_value_that_is_not_of_the_key_is_refused(kind: pa.DataType, text: str, remedy: str, tmp_path: Path) -> None:
    row, lake = spec_of(), Lake(tmp_path)
    values = pa.table({"id": pa.array([None], kind), "v": ["x"]})
    write(Path(lake.layout(row).landing), "LOAD00000001.parquet", values)
    lake.done(row)
    for action in ("explain", "erase"):
        message = error_of(lake, row, options_of(action, key={"id": text}))
        assert "[KEY_INVALID] the value for id is not one of its type" in message
        assert remedy in message
        assert text not in message.replace(remedy, "")
    assert not Path(lake.layout(row).erased).exists()


def test_erased_key_shows_erasure_time(tmp_path: Path) -> None:
    row = spec_of()
    lake = filled(tmp_path, row)
    erased = lake.done(row, JobOptions(action=Erase(key={"id": "1"}))).details
    details = lake.done(row, asked()).details
    assert (details["erased_at"], details["outcome"], details["replica"]) == (erased["asked_at"], "no_changes", [])


@pytest.mark.parametrize(
    ("key", "code"),
    [({"id": "77"}, "KEY_NOT_FOUND"), ({"id": "x1"}, "KEY_INVALID"), ({"no": "1"}, "KEY_INVALID")],
)
def test_invalid_and_unknown_keys_are_refused(key: dict[str, str], code: str, tmp_path: Path) -> None:
    row = spec_of()
    message = error_of(filled(tmp_path, row), row, asked(**key))
    assert f"[{code}]" in message
    assert "77" not in message
    assert "x1" not in message


def test_table_without_keys_or_rows_is_refused(tmp_path: Path) -> None:
    lake, row = Lake(tmp_path), spec_of()
    assert "[TABLE_WITHOUT_KEYS] s.t has no keys, or was never loaded" in error_of(lake, row, asked())
    keyless = replace(row, keys=())
    write(Path(lake.layout(row).landing), "LOAD00000001.parquet", pa.table({"id": [1]}))
    lake.done(keyless)
    assert "[TABLE_WITHOUT_KEYS]" in error_of(lake, keyless, asked())


def test_explain_leaves_no_run_record(tmp_path: Path) -> None:
    row = spec_of()
    lake = filled(tmp_path, row)
    kept = sorted(Path(lake.layout(row).runs).iterdir())
    result: JobResult = lake.done(row, asked())
    assert (result.action, result.batches) == ("explain", 0)
    assert sorted(Path(lake.layout(row).runs).iterdir()) == kept


def test_full_refresh_keeps_the_explanation(tmp_path: Path) -> None:
    row = spec_of()
    lake = filled(tmp_path, row)
    lake.done(row, JobOptions(action=Rebuild()))
    details = lake.done(row, asked()).details
    assert [(change["sequence"], change["state"]) for change in details["changes"]] == [
        (None, "superseded"), (100, "superseded"), (200, "late"), (300, "winner"),
    ]  # fmt: skip
    assert (details["outcome"], details["verdict"]) == ("present", "equal")


def test_erasure_removes_the_key_from_results(tmp_path: Path) -> None:
    """Answers of jobs that ran elsewhere stay in the lake for a time."""
    row = spec_of(before_image_prefix="BI_")
    lake = Lake(tmp_path)
    lake.load(row)
    moved = {"Op": ["U", "?"], "seq": [1, 2], "id": pa.array([10, 10], pa.int32()), "v": ["m", "bad"]}
    images = {"BI_id": pa.array([1, None], pa.int32())}
    write(Path(lake.layout(row).landing), "20240101-000000001.parquet", pa.table({**moved, **images}))
    lake.done(row)
    paths = []
    for number, key in enumerate(("10", "1")):
        folder = join(lake.roots.lake, "_gddl", "results", f"r{number}")
        ResultStore(Storage(), folder).put(lake.done(row, asked(id=key)))
        paths.append(Path(folder, result_name("s.t")))
    assert all("10" in shown_keys(path) for path in paths)
    lake.done(row, JobOptions(action=Erase(key={"id": "10"})))
    own, other = (json.loads(path.read_text())["details"] for path in paths)
    assert (own["keys"], own["replica"], own["quarantine"]["records"]) == ([], [], [])
    assert [change["op"] for change in other["changes"]] == ["R"], "not the delete that names the other key"
    assert all("10" not in shown_keys(path) for path in paths)


def shown_keys(path: Path) -> set[str]:
    """All values for `id` in JSON texts of an answer."""
    return set(re.findall(r'\\"id\\": ?(?:\\")?(\d+)', path.read_text()))
