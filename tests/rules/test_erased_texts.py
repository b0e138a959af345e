"""Keys that are never erased."""

from __future__ import annotations

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.rules.erasure import ErasedKeys, key_text


def test_key_with_null_part_is_not_erased() -> None:
    erased = ErasedKeys(table="s.t", salt=b"x" * 32, hashes=frozenset({"-"}))
    assert erased.held([key_text(1, parse_type("int")), key_text(None, parse_type("string"))]) is None
