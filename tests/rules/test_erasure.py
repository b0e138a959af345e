"""Keys in records of the quarantine."""

from __future__ import annotations

import pytest

from spark_jobs.rules.erasure import key_of_record


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
