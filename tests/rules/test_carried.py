"""Which moved rows may lack values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import Column
from spark_jobs.rules.carried import incomplete
from tests.rules.changes import Change, table, table_schema


@pytest.mark.parametrize(("value", "image", "lacks"), [("a", None, False), (None, "a", False), (None, None, True)])
def test_moved_row_lacks_a_column_without_value_and_image(value: str | None, image: str | None, lacks: bool) -> None:
    """What the service adds to a change is none of the row's."""
    text = parse_type("string")
    schema = table_schema(ignore_null_updates=True, before_image_prefix="old_")
    schema = replace(schema, data=(*schema.data, Column("hint", text)), technical=("hint",),
                     before=(Column("old_v", text), Column("old_hint", text)))  # fmt: skip
    rows = table([Change(op="U", v=value)], table_schema())
    rows = rows.append_column("hint", pa.nulls(1, pa.string())).append_column("old_v", pa.array([image], pa.string()))
    rows = rows.append_column("old_hint", pa.nulls(1, pa.string()))
    assert incomplete(rows, schema, np.array([True])).tolist() == [lacks]
    assert incomplete(rows, schema, np.array([False])).tolist() == [False]
