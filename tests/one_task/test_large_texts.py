"""A row group with more text than an Arrow array holds is loaded in slices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec
from tests.harness.lake import Lake

MIB, ROWS = 1024**2, 2_200


def texts(start: int, count: int) -> list[str]:
    """Of 1 MiB each, which nothing compresses."""
    return [np.random.default_rng(start + n).integers(97, 123, MIB, np.uint8).tobytes().decode() for n in range(count)]


def land(path: Path) -> None:
    path.parent.mkdir(parents=True)
    schema = pa.schema([("id", pa.int64()), ("doc", pa.string())])
    docs = pa.chunked_array([pa.array(texts(at, 200)) for at in range(0, ROWS, 200)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        writer.write_table(pa.table([pa.array(range(ROWS), pa.int64()), docs], schema.names), row_group_size=ROWS)


@pytest.mark.deep
def test_load_of_a_row_group_with_more_than_two_gibibytes_of_text(tmp_path: Path) -> None:
    spec = TableSpec(table="s.t", keys=("id",))
    lake = Lake(tmp_path, tier=replace(DEFAULT_TIERS["medium"], task_max_bytes=1 << 40))
    path = lake.landing(spec) / "LOAD00000001.parquet"
    land(path)
    assert pq.read_metadata(path).num_row_groups == 1
    result = lake.done(spec)
    assert (result.status, result.rows_read, result.main.inserted) == ("succeeded", ROWS, ROWS)
    found = 0
    for batch in DeltaTable(lake.layout(spec).replica).to_pyarrow_dataset().to_batches(batch_size=50):
        assert pc.all(pc.equal(pc.binary_length(batch.column("doc")), MIB)).as_py()
        first = batch.column("id")[0].as_py()
        assert batch.column("doc")[0].as_py() == texts(first, 1)[0]
        found += batch.num_rows
    assert found == ROWS
