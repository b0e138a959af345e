"""Tables whose sequences were stored before numbers in text had a normal form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import BatchCommit
from spark_jobs.table.outcome import TableOutcome
from tests.delta_rs.small_lake import SmallLake, spec_of
from tests.landing import write


def change(lake: SmallLake, spec: TableSpec, number: int, *rows: tuple[str, str, int, str]) -> None:
    ops, sequences, ids, values = zip(*rows, strict=True)
    table = pa.table({"Op": ops, "seq": sequences, "id": pa.array(ids, pa.int32()), "v": values})
    write(Path(lake.layout(spec).landing), f"20240101-{number:09d}.parquet", table)


def as_before(lake: SmallLake, spec: TableSpec) -> None:
    """The ledger says what one without normal forms says."""
    ledger = Ledger.open(Storage(), lake.layout(spec).state)
    last = ledger.last_commit()
    assert last is not None
    number = last.number + 1
    state = replace(ledger.state, batch=number, normal_text=False)
    plan = replace(last.plan, number=number, files=())
    ledger.commit(BatchCommit(number=number, plan=plan, files=(), state=state))


def test_text_form_is_kept_until_a_full_refresh(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of(history=True)
    change(lake, spec, 1, ("I", "00000000/09FFFFFF", 1, "old"))
    lake.done(spec)
    as_before(lake, spec)
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
