"""Keys in records of the quarantine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import GDDL, Column
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.erasure import Bound, ErasedKeys, emptied, key_of_record, without_erased
from tests.harness.landed import planned_file
from tests.rules.changes import IN_ORDER, Change, in_file, table, table_schema


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (None, None),
        ('{"seq": 1, "v": "x"}', None),
        ('{"ID": 7, "v": "x"}', {"id": 7}),
        ('{"id": 1.50, "Part": null}', {"id": "1.50", "part": None}),
    ],
)
def test_key_of_a_record_has_the_columns_that_it_delivers(record: str | None, key: object) -> None:
    assert key_of_record(record, ["id", "part"]) == key


def test_before_images_are_emptied_where_they_are_of_an_erased_key() -> None:
    schema = replace(table_schema(), before=(Column("old_v", parse_type("string")),))
    rows = pa.table({"id": [1, 2], "old_v": ["a", "b"]})
    for where, left in (([True, False], [None, "b"]), ([False, False], ["a", "b"])):
        assert emptied(rows, schema, np.array(where)).column("old_v").to_pylist() == left


def test_rows_of_an_erased_key_are_kept_out_up_to_the_sequence_of_its_erasure() -> None:
    """In a file that came later; one of a later sequence is of a key that is used again."""
    until, schema = datetime(2024, 1, 1, tzinfo=UTC), table_schema()
    file = replace(planned_file("20240101-000000001.parquet"), path=IN_ORDER, modified="2024-02-01T00:00:00+00:00")
    of_one = ErasedKeys(table="s.t", salt=b"salt", columns=("id",))
    erased = replace(of_one, hashes=frozenset({of_one.hash_of(["1"])}), files={IN_ORDER: file},
                     bound=lambda _: Bound(until=until, sequence="6"))  # fmt: skip
    rows = table(in_file(*(Change(op="U", id=i, seq=seq) for i, seq in ((1, 5), (1, 6), (1, 7), (2, 5)))), schema)
    group, count = without_erased(DecodedGroup(kind="change", rows=rows), schema, erased)
    assert count == 2
    assert [(one["id"], one[GDDL]["sequence"]) for one in group.rows.to_pylist()] == [(1, 7), (2, 5)]
