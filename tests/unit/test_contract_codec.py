"""Specs and results to JSON and back: equal values, equal bytes, and strict refusals that name the path."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, get_args

import pytest

from airflow_gddl.contract.actions import ACTIONS, Action, Load, Plan, Release, Reload, Verify
from airflow_gddl.contract.basics import LOADS
from airflow_gddl.contract.codec import (
    IGNORABLE,
    NewerDocumentError,
    compact,
    decode,
    from_json,
    from_json_or_none,
    plain,
    report_from_json,
    to_document,
    to_json,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.result import JobResult, MainCounts, RunWarning
from airflow_gddl.contract.spec import DEFAULT_TIERS, DesiredState, JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from airflow_gddl.runtime.landing.tables_with_work import row_digest

TABLE = TableSpec(
    table="shop.orders",
    keys=("id", "line"),
    schedule={"assets": ("raw", "other")},
    columns=("id",),
    mask={"email": "hash"},
    schema_evolution=SchemaEvolution(dropped_column="null"),
    tags={"team": "ä🙂"},
    options={"types": {"a": "decimal(12,2)"}, "csv_columns": ["a", "b"]},
)
SPEC = JobSpec(
    run_id="r1",
    roots=Roots(landing="/in", lake="s3://b/out"),
    tables=(TABLE, TableSpec(table="shop.keyless", keys=(), schedule=None)),
    options=JobOptions(action=Verify(), wait_seconds=1.5, max_batches=3),
)


def test_a_job_spec_comes_back_equal() -> None:
    again = from_json(JobSpec, to_json(SPEC))
    assert again == SPEC
    assert again.tiers == DEFAULT_TIERS
    assert isinstance(again.tables[0].keys, tuple)


def test_a_result_comes_back_equal() -> None:
    result = JobResult(
        table="s.a",
        status="failed",
        main=MainCounts(inserted=1),
        warnings=(RunWarning(code="X", message="m", sample=(1, "a", None)),),
        details={"a": [1, 2.5, None]},
    )
    assert from_json(JobResult, to_json(result)) == result


def test_equal_values_give_equal_bytes_on_one_line() -> None:
    one, two = replace(TABLE, tags={"a": "1", "b": "2"}), replace(TABLE, tags={"b": "2", "a": "1"})
    assert to_json(one) == to_json(two)
    assert "\n" not in to_json(replace(TABLE, owner="a\nb"))
    assert '"team":"ä🙂"' in to_json(TABLE)


def test_plain_keeps_the_order_of_fields() -> None:
    assert plain(Roots(landing="a", lake="b")) == {"landing": "a", "lake": "b"}
    assert list(plain(TABLE))[:3] == ["table", "keys", "source"]
    assert plain({1: (2, {"a": (3,)})}) == {"1": [2, {"a": [3]}]}


def test_defaults_are_filled_in() -> None:
    assert decode(TableSpec, {"table": "a.b", "keys": []}) == TableSpec(table="a.b", keys=())
    assert decode(DmsOptions, {}) == DmsOptions()


@dataclass(frozen=True)
class Amount:
    value: float


def test_whole_numbers_are_floats_where_floats_are_wanted() -> None:
    amount = decode(Amount, {"value": 2})
    assert (amount.value, type(amount.value)) == (2.0, float)


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"keys": "id"}, "TableSpec.keys", "'id' is not a list"),
    ({"keys": [1]}, "TableSpec.keys[0]", "1 is not text"),
    ({"keys": ["a", None]}, "TableSpec.keys[1]", "None is not text"),
    ({"history": 1}, "TableSpec.history", "1 is not true or false"),
    ({"history": "true"}, "TableSpec.history", "'true' is not true or false"),
    ({"delete": "gone"}, "TableSpec.delete", "'gone' is not one of ('hard', 'soft')"),
    ({"delete": ["hard"]}, "TableSpec.delete", "['hard'] is not one of"),
    ({"mask": {"a": "x"}}, "TableSpec.mask.a", "'x' is not one of"),
    ({"mask": []}, "TableSpec.mask", "[] is not an object"),
    ({"schedule": 5}, "TableSpec.schedule", "5 is not text"),
    ({"schema_evolution": {"new_colum": "add"}}, "TableSpec.schema_evolution.new_colum", "unknown field 'new_colum'"),
    ({"schema_evolution": None}, "TableSpec.schema_evolution", "None is not an object"),
    ({"colour": "red"}, "TableSpec.colour", "unknown field 'colour'"),
]


@pytest.mark.parametrize(("change", "path", "message"), BAD)
def test_wrong_values_are_refused_with_their_path(change: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(FatalError) as error:
        decode(TableSpec, {"table": "a.b", "keys": ["id"], **change})
    assert (error.value.code, error.value.where) == ("SPEC_INVALID", path)
    assert message in error.value.what


def test_missing_fields_are_named() -> None:
    with pytest.raises(FatalError) as error:
        decode(JobSpec, {"run_id": "x", "roots": {"landing": "a"}, "tables": []})
    assert error.value.where == "JobSpec.roots.lake"


@pytest.mark.parametrize("data", [None, [], "x", 5])
def test_only_objects_make_a_spec(data: Any) -> None:
    with pytest.raises(FatalError, match="is not an object"):
        decode(TableSpec, data)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(FatalError, match="not JSON") as error:
        from_json(JobSpec, "{")
    assert error.value.where == "JobSpec"


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(FatalError) as error:
        decode(TableSpec, {"table": "a.b", "keys": "x" * 10_000})
    assert len(error.value.what) < 120


def test_what_an_older_job_does_not_know_is_refused() -> None:
    data = json.loads(to_json(SPEC)) | {"novelty": 1}
    with pytest.raises(NewerDocumentError, match=r"unknown field 'novelty'.*if a newer airflow-gddl wrote this"):
        decode(JobSpec, data)


def test_compact_values_come_back_equal() -> None:
    data = compact(TABLE)
    assert set(data) == {"table", "keys", "schedule", "columns", "mask", "schema_evolution", "tags", "options"}
    assert data["schema_evolution"] == {"dropped_column": "null"}
    assert decode(TableSpec, json.loads(json.dumps(data))) == TABLE


def test_documents_hold_what_differs_from_the_defaults() -> None:
    """And what must not depend on who reads: the contract's version and the tiers, whose defaults may change."""
    data = json.loads(to_document(SPEC))
    assert set(data) == {"run_id", "roots", "tables", "tiers", "options", "contract_version"}
    assert data["options"] == {"action": {"name": "verify"}, "wait_seconds": 1.5, "max_batches": 3}
    assert data["tables"][1] == {"table": "shop.keyless", "keys": [], "schedule": None}
    assert data["tables"][0]["schema_evolution"] == {"dropped_column": "null"}
    assert (data["tiers"]["small"], set(data["tiers"])) == ({}, set(DEFAULT_TIERS))
    assert from_json(JobSpec, to_document(SPEC)) == SPEC
    assert json.loads(to_document(DesiredState(tables=()))).keys() == {"tables", "tiers", "contract_version"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row as a later version may have it."""

    name: str
    colour: str = "red"
    label: str = field(default="", metadata={IGNORABLE: True})


@dataclass(frozen=True, kw_only=True)
class Job:
    rows: tuple[Row, ...]
    ignorable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EarlierRow:
    name: str


EarlierRow.__name__ = "Row"


@dataclass(frozen=True, kw_only=True)
class EarlierJob:
    rows: tuple[EarlierRow, ...]
    ignorable: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "action",
    [
        *(kind() for kind in ACTIONS.values() if kind is not Release),
        Release(held="truncate"),
        Plan(of=Reload(landed_since="2026-01-31")),
    ],
)
def test_an_action_comes_back_with_its_options(action: Action) -> None:
    options = JobOptions(action=action)
    assert from_json(JobOptions, to_document(options)) == options


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("verify", "JobOptions.action"), ({"name": "vacuum"}, "JobOptions.action.name"),
        ({"name": ["run"]}, "JobOptions.action.name"), ({}, "JobOptions.action.name"),
    ],
)  # fmt: skip
def test_an_action_of_another_version_is_refused_with_the_way_out(written: Any, where: str) -> None:
    with pytest.raises(FatalError, match="SPEC_INVALID") as caught:
        decode(JobOptions, {"action": written})
    assert caught.value.where == where
    assert "install the same version on both sides" in str(caught.value)


def test_each_load_counts_as_one() -> None:
    assert {kind.name for kind in get_args(Load)} < set(LOADS) < set(ACTIONS)


def test_a_new_field_is_no_matter_until_it_is_used() -> None:
    found = from_json(EarlierJob, to_document(Job(rows=(Row(name="a"),))))
    assert found == EarlierJob(rows=(EarlierRow(name="a"),))


def test_a_new_field_that_changes_the_meaning_is_refused_once_it_is_used() -> None:
    for rows in ((Row(name="a", colour="blue"),), (Row(name="a", label="x"), Row(name="b", colour="blue"))):
        with pytest.raises(NewerDocumentError, match="unknown field 'colour'"):
            from_json(EarlierJob, to_document(Job(rows=rows)))


def test_a_new_field_that_may_be_ignored_is_named_by_the_document() -> None:
    text = to_document(Job(rows=(Row(name="a", label="x"),)))
    assert json.loads(text)["ignorable"] == ["Row.label"]
    assert from_json(EarlierJob, text).rows == (EarlierRow(name="a"),)
    assert from_json(Job, text).rows == (Row(name="a", label="x"),)


def test_reports_of_newer_jobs_are_read_without_what_is_unknown() -> None:
    result = JobResult(table="s.a", status="succeeded", main=MainCounts(inserted=1))
    data = json.loads(to_json(result))
    newer = json.dumps({**data, "novelty": 1, "main": {**data["main"], "moved": 2}})
    assert report_from_json(JobResult, newer) == result
    assert from_json_or_none(JobResult, newer) == result
    assert from_json_or_none(JobResult, '{"table": "s.a", "status": "odd"}') is None


def test_the_digest_of_a_row_is_that_of_what_it_says() -> None:
    """By it the sensor knows changed rows: with every new field it would send all tables to a job once."""
    row = TableSpec(table="s.a", keys=("id",), owner="ann")
    assert row_digest(row) == row_digest(replace(row, history=False, delete="hard", columns=None))
    assert row_digest(row) != row_digest(replace(row, history=True))
    data = to_document(row).encode()
    assert data == b'{"keys":["id"],"owner":"ann","table":"s.a"}'
    assert row_digest(row) == blake2b(data, digest_size=8).hexdigest()
