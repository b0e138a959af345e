"""Tables whose sequences were stored before numbers in text had a normal form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import BatchCommit
from spark_jobs.table.runtime import TableOutcome
from tests.delta_rs.small_lake import SmallLake, spec_of
from tests.landing import write


def change(lake: SmallLake, spec: TableSpec, number: int, *rows: tuple[str, str, int, str]) -> None:
    ops, sequences, ids, values = zip(*rows, strict=True)
    table = pa.table({"Op": ops, "seq": sequences, "id": pa.array(ids, pa.int32()), "v": values})
    write(Path(lake.layout(spec).landing), f"20240101-{number:09d}.parquet", table)


def as_before(lake: SmallLake, spec: TableSpec, **fields: Any) -> None:
    """The ledger says what one of an earlier release says; `fields`: of its state."""
    ledger = Ledger.open(Storage(), lake.layout(spec).state)
    last = ledger.last_commit()
    assert last is not None
    number = last.number + 1
    state = replace(ledger.state, batch=number, instants=False, sequence_forms={}, **fields)
    plan = replace(last.plan, number=number, files=())
    ledger.commit(BatchCommit(number=number, plan=plan, files=(), state=state))


def test_text_form_is_kept_until_a_full_refresh(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of(history=True)
    change(lake, spec, 1, ("I", "00000000/09FFFFFF", 1, "old"))
    lake.done(spec)
    as_before(lake, spec, normal_text=False)
    change(lake, spec, 2, ("U", "0/10000000", 1, "new"))

    refused = lake.run(spec)
    assert isinstance(refused, TableOutcome)
    assert refused.result.error is not None
    assert refused.result.error.code == "SEQUENCE_WIDTH"
    assert lake.replica(spec) == {1: "old"}

    lake.done(spec, JobOptions(full_refresh=True))
    assert lake.replica(spec) == {1: "new"}
    stored = pa.table(DeltaTable(lake.layout(spec).changes).scan()).to_pylist()
    assert sorted(row["_gddl"]["sequence"] for row in stored) == ["00000000/09FFFFFF", "00000000/10000000"]
    assert lake.done(spec, JobOptions(action="verify")).details["verdict"] == "equal"

    change(lake, spec, 3, ("U", "0/A000000", 1, "late"), ("U", "1/0", 1, "newest"))
    lake.done(spec)
    assert lake.replica(spec) == {1: "newest"}
    assert lake.done(spec, JobOptions(action="verify")).details["verdict"] == "equal"


def test_times_of_one_zone_go_on_as_text_until_a_full_refresh(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of(history=True)
    change(lake, spec, 1, ("I", "2025-09-09T01:00:00+02:00", 1, "old"))
    lake.done(spec)
    as_text(lake, spec, "2025-09-09T01:00:00+02:00")
    change(lake, spec, 2, ("U", "2025-09-09T02:30:00+02:00", 1, "newer"))
    lake.done(spec)
    assert stored(lake, spec) == ["2025-09-09T01:00:00+02:00", "2025-09-09T02:30:00+02:00"]
    change(lake, spec, 3, ("U", "2025-09-09T02:10:00+01:00", 1, "newest"))
    refused = lake.run(spec)
    assert isinstance(refused, TableOutcome)
    assert refused.result.error is not None
    assert refused.result.error.code == "SEQUENCE_FORM"
    assert lake.replica(spec) == {1: "newer"}

    lake.done(spec, JobOptions(full_refresh=True))
    assert lake.replica(spec) == {1: "newest"}
    assert stored(lake, spec) == [f"2025-09-{rest}:00.000000000Z" for rest in ("08T23:00", "09T00:30", "09T01:10")]
    assert lake.done(spec, JobOptions(action="verify")).details["verdict"] == "equal"
    change(lake, spec, 4, ("U", "2025-09-09 01:00", 1, "late"), ("U", "2025-09-09 01:11", 1, "last"))
    lake.done(spec)
    assert lake.replica(spec) == {1: "last"}


def stored(lake: SmallLake, spec: TableSpec) -> list[str]:
    rows = pa.table(DeltaTable(lake.layout(spec).changes).scan()).to_pylist()
    return sorted(row["_gddl"]["sequence"] for row in rows)


def as_text(lake: SmallLake, spec: TableSpec, text: str) -> None:
    """The tables and the ledger hold a sequence as it came, as an earlier release left them."""
    for path in (lake.layout(spec).changes, lake.layout(spec).replica, lake.layout(spec).history):
        table = pa.table(DeltaTable(path).scan())
        gddl = [{**row, "sequence": text} for row in table.column("_gddl").to_pylist()]
        at = table.schema.get_field_index("_gddl")
        table = table.set_column(at, table.schema.field(at), pa.array(gddl, table.schema.field(at).type))
        write_deltalake(path, table, mode="overwrite", commit_properties=CommitProperties({"userMetadata": "gddl"}))
    as_before(lake, spec, max_sequence=f'"{text}"')
