"""`unique` and `foreign_key` of a row on real Delta tables: what `gddl verify` finds, against a naive oracle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Erase, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import ForeignKey
from airflow_gddl.stores import Storage
from spark_jobs.batch.totals import Declined
from spark_jobs.job.run_results import for_record
from spark_jobs.verification import read_orphans
from tests.harness.asked import options_of
from tests.harness.examples import at_random
from tests.harness.lake import TIER, Lake
from tests.harness.landing import write
from tests.harness.sharded import Sharded

PARENT = TableSpec(table="s.customers", keys=("id",), sequence_by=("seq",), settle="0s")
CHILD = TableSpec(
    table="s.orders",
    keys=("id",),
    sequence_by=("seq",),
    settle="0s",
    foreign_key={"customer": ForeignKey(columns=("customer",), to="s.customers", to_columns=("id",))},
)
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def load(lake: Lake, spec: TableSpec, **columns: Any) -> None:
    write(Path(lake.layout(spec).landing), "LOAD00000001.parquet", pa.table(columns))
    lake.done(spec)


def change(lake: Lake, spec: TableSpec, ops: Sequence[str], **columns: Any) -> None:
    rows = {"Op": list(ops), "seq": list(range(1, len(ops) + 1)), **columns}
    write(Path(lake.layout(spec).landing), "20240101-000000001.parquet", pa.table(rows))
    lake.done(spec)


def verify(lake: Lake, spec: TableSpec, now: datetime = NOW, **options: Any) -> JobResult:
    return lake.result(spec, options_of(action="verify", **options), clock=lambda: now)


def counts(result: JobResult) -> dict[str, tuple[int, int]]:
    return {one.name: (one.checked, one.failed) for one in result.expectations}


def code(result: JobResult) -> str | None:
    return None if result.error is None else result.error.code


def test_unique_names_values_that_two_rows_have(tmp_path: Path) -> None:
    """Nulls are no values; a pair is unique as a pair; names match in any case."""
    lake = Lake(tmp_path)
    spec = replace(PARENT, unique={"email": ("EMAIL",), "pair": ("email", "no")})
    load(lake, spec, id=[1, 2, 3, 4, 5], email=["a", "b", "a", None, None], no=[1, 1, 2, 7, 7])
    result = verify(lake, spec)
    assert (result.status, code(result)) == ("failed", "VERIFY_VIOLATED")
    assert result.error is not None
    assert "unique.email (EMAIL): 2 of 3 rows have the values of another row" in result.error.message
    assert counts(result) == {"unique.email": (3, 2), "unique.pair": (3, 0)}
    assert result.details["verdict"] == "violated"
    assert result.details["constraints"][0]["keys"] == ({"key": '{"email":"a"}', "rows": 2, "settled": True},)
    kept = for_record(result).details["constraints"]
    assert [(one["name"], one["failed"], "keys" in one) for one in kept] == [
        ("unique.email", 2, False), ("unique.pair", 0, False),
    ]  # fmt: skip


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_deleted_rows_are_not_counted(tmp_path: Path, delete: Any) -> None:
    """Neither in the table itself, nor in the one that a foreign key names."""
    lake = Lake(tmp_path)
    parent, child = replace(PARENT, delete=delete, unique={"v": ("v",)}), replace(CHILD, delete=delete)
    load(lake, parent, id=[1, 2], v=["a", "a"])
    load(lake, child, id=[10, 11], customer=[1, 2])
    assert code(verify(lake, parent)) == "VERIFY_VIOLATED"
    assert code(verify(lake, child)) is None
    change(lake, parent, ["D"], id=[2], v=["a"])
    assert (code(verify(lake, parent)), counts(verify(lake, parent))) == (None, {"unique.v": (1, 0)})
    result = verify(lake, child, settle_seconds=0)
    assert (code(result), counts(result)) == ("VERIFY_VIOLATED", {"foreign_key.customer": (2, 1)})
    assert result.details["constraints"][0]["keys"] == ({"key": '{"customer":2}', "rows": 1, "settled": True},)
    change_of_child = {"id": [11], "customer": [2]}
    change(lake, child, ["D"], **change_of_child)
    assert counts(verify(lake, child, settle_seconds=0)) == {"foreign_key.customer": (1, 0)}


def test_orphan_is_reported_once_it_had_the_time_to_get_its_row(tmp_path: Path) -> None:
    """A row that comes in time leaves no trace; one that is gone again begins anew."""
    lake = Lake(tmp_path)
    spec = replace(CHILD, freshness="30m")
    load(lake, PARENT, id=[1])
    load(lake, spec, id=[10, 11, 12], customer=[1, 2, None])
    first = verify(lake, spec)
    assert (first.status, code(first), counts(first)) == ("succeeded", None, {"foreign_key.customer": (2, 0)})
    assert [(w.code, w.count, w.sample) for w in first.warnings] == [
        ("FOREIGN_KEY_UNSETTLED", 1, ('{"customer":2}',))
    ]  # fmt: skip
    assert (first.details["verdict"], first.details["constraints"][0]["unsettled"]) == ("equal", 1)
    assert code(verify(lake, spec, NOW + timedelta(minutes=29))) is None
    late = verify(lake, spec, NOW + timedelta(minutes=30))
    assert (code(late), counts(late)) == ("VERIFY_VIOLATED", {"foreign_key.customer": (2, 1)})
    assert late.error is not None
    assert "foreign_key.customer (customer): 1 of 2 rows have no row in s.customers" in late.error.message
    change(lake, PARENT, ["I"], id=[2])
    healed = verify(lake, spec, NOW + timedelta(minutes=31))
    assert (code(healed), healed.warnings) == (None, ())
    assert read_orphans(Storage(), lake.layout(spec).state) == {"foreign_key.customer": {}}


def test_an_erasure_removes_what_is_remembered_of_values(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    load(lake, PARENT, id=[1])
    load(lake, CHILD, id=[10, 11], customer=[1, 2])
    verify(lake, CHILD)
    state = lake.layout(CHILD).state
    assert [len(values) for values in read_orphans(Storage(), state).values()] == [1]
    lake.done(CHILD, JobOptions(action=Erase(key={"id": "11"}, asked_by="eve")))
    assert read_orphans(Storage(), state) == {}
    assert code(verify(lake, CHILD, settle_seconds=0)) is None


def test_what_can_not_be_checked_is_said(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    spec = replace(CHILD, unique={"gone": ("none",)})
    load(lake, spec, id=[10], customer=["1"])
    result = verify(lake, spec)
    assert (result.status, code(result)) == ("failed", "CONSTRAINT_NOT_CHECKED")
    assert result.error is not None
    assert "unique.gone: s/orders has no column 'none'" in result.error.message
    assert "foreign_key.customer: s.customers is not loaded yet" in result.error.message
    load(lake, PARENT, id=[1])
    text = str(verify(lake, spec).error)
    assert "values of customer (string) and id (bigint) don't compare" in text


def test_a_table_too_large_for_this_process_is_left_to_spark(tmp_path: Path) -> None:
    """Also the one that a foreign key names, which may be of another tier."""
    lake = Lake(tmp_path)
    load(lake, PARENT, id=list(range(50_000)))
    load(lake, CHILD, id=[10], customer=[1])
    small = Lake(tmp_path, replace(TIER, task_max_bytes=50_000))
    found = small.run(CHILD, JobOptions(action=Verify()))
    assert isinstance(found, Declined)
    assert "the table customers has" in found.reason
    assert code(verify(small, replace(CHILD, foreign_key={}))) is None


def test_numbers_of_two_widths_compare(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    load(lake, PARENT, id=pa.array([1, 2**40], pa.int64()))
    load(lake, CHILD, id=[10, 11], customer=pa.array([1, 3], pa.int32()))
    assert counts(verify(lake, CHILD, settle_seconds=0)) == {"foreign_key.customer": (2, 1)}


def test_each_source_of_a_table_has_its_own_values(tmp_path: Path) -> None:
    """Sources may have equal values; a row needs one of its own source, where the other table has sources, too."""
    landed = Sharded(tmp_path, ("eu", "us"), {"unique": {"v": ("v",)}})
    lake, spec = Lake(tmp_path), landed.spec
    landed.load("eu", {1: "a", 2: "b"})
    landed.load("us", {1: "a", 3: "x", 4: "x"})
    lake.done(spec)
    result = verify(lake, spec)
    assert (code(result), counts(result)) == ("VERIFY_VIOLATED", {"unique.v": (5, 2)})
    assert [one["key"] for one in result.details["constraints"][0]["keys"]] == ['{"_source":"us","v":"x"}']
    own = ForeignKey(columns=("id",), to="s.t", to_columns=("id",))
    assert counts(verify(lake, replace(spec, unique={}, foreign_key={"own": own}))) == {"foreign_key.own": (5, 0)}


VALUES = st.sampled_from([None, "a", "A", "b", ""])
NUMBERS = st.sampled_from([None, 0, 1, -1])


@settings(max_examples=at_random(25))
@given(rows=st.lists(st.tuples(VALUES, NUMBERS), max_size=8), parents=st.lists(st.tuples(NUMBERS, VALUES), max_size=5))
def test_findings_are_those_of_a_naive_check(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, Any]], parents: list[tuple[Any, Any]]
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    pair = ForeignKey(columns=("v", "n"), to="s.customers", to_columns=("w", "m"))
    spec = replace(CHILD, unique={"pair": ("v", "n"), "v": ("v",)}, foreign_key={"pair": pair})
    v, n = pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows], pa.int32())
    m, w = pa.array([p[0] for p in parents], pa.int64()), pa.array([p[1] for p in parents], pa.string())
    load(lake, PARENT, id=pa.array(range(len(parents)), pa.int64()), m=m, w=w)
    load(lake, spec, id=pa.array(range(len(rows)), pa.int64()), v=v, n=n)
    result = verify(lake, spec, settle_seconds=0)
    whole = [row for row in rows if None not in row]
    single = [row[0] for row in rows if row[0] is not None]
    there = {(p[1], p[0]) for p in parents}
    orphans = [row for row in whole if row not in there]
    assert counts(result) == {
        "unique.pair": (len(whole), sum(c for c in Counter(whole).values() if c > 1)),
        "unique.v": (len(single), sum(c for c in Counter(single).values() if c > 1)),
        "foreign_key.pair": (len(whole), len(orphans)),
    }
    named = {
        (json.loads(one["key"])["v"], json.loads(one["key"])["n"]): one["rows"]
        for one in result.details["constraints"][2]["keys"]
    }
    assert named == Counter(orphans)
