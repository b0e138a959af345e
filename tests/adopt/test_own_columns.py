"""Tables that a MERGE of another job keeps, with columns of its own that no file has, taken over in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Rebuild, Reload, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.adopt.taking_over import AFTER, BEFORE, SCHEMA, Landed, adopting, chance, table_of, values
from tests.harness.lake import Lake, spec_of

SAMPLE, ALL = 16, 200
SEEDS = [*range(SAMPLE), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(SAMPLE, ALL))]
Own = Mapping[int, tuple[str | None, int | None]]
"""Key to surrogate key and load time, both null where ours has inserted the row."""


@dataclass(frozen=True)
class MergeJob:
    """The other job: a surrogate key for each inserted row, and the number of the file that wrote it last.

    Attributes:
        ordered: the table has the column that orders changes.
    """

    path: str
    source: Landed
    ordered: bool

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA if self.ordered else pa.schema([field for field in SCHEMA if field.name != "seq"])

    def load(self) -> None:
        rows = table_of(self.source.states[0], self.schema)
        keys = rows.column("id").to_pylist()
        rows = rows.append_column("surrogate", pa.array([f"load {key}" for key in keys], pa.string()))
        write_deltalake(self.path, rows.append_column("loaded", pa.array([0] * len(keys), pa.int64())))

    def apply(self, number: int) -> None:
        """Merge the last change of each key of a file."""
        last = {row["id"]: row for row in self.source.files[number].to_pylist()}
        columns = {name: [row[name] for row in last.values()] for name in (*SCHEMA.names, "Op")}
        changes = pa.table(columns, schema=SCHEMA.append(pa.field("Op", pa.string())))
        updated = {name: f"s.{name}" for name in self.schema.names} | {"loaded": str(number)}
        inserted = updated | {"surrogate": f"concat('file {number}, ', cast(s.id as string))"}
        merge = DeltaTable(self.path).merge(changes, "s.id = t.id", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s.Op = 'D'").when_matched_update(updated)
        merge.when_not_matched_insert(inserted, "s.Op <> 'D'").execute()


def own_columns(lake: Lake, spec: TableSpec) -> Own:
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    return {row["id"]: (row["surrogate"], row["loaded"]) for row in rows}


def after(own: Own, source: Landed, numbers: range) -> Own:
    """What is left once files are loaded: a delete ends it, and a row that comes next has nothing."""
    found = dict(own)
    for row in (row for number in numbers for row in source.files[number].to_pylist()):
        if row["Op"] == "D":
            found.pop(row["id"], None)
        else:
            found.setdefault(row["id"], (None, None))
    return found


def verified(lake: Lake, spec: TableSpec) -> None:
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_of_the_other_job_are_kept(seed: int, tmp_path: Path) -> None:
    """Files from the cut on are loaded once more, up to the one that the other job has loaded last."""
    random, lake = chance(f"own {seed}"), Lake(tmp_path)
    source, spec = Landed.of(f"own {seed}", files=6, keys=8), spec_of(history=random.random() < 0.5)
    job = MergeJob(lake.layout(spec).replica, source, ordered=random.random() < 0.7)
    applied = random.randrange(1, len(source.files))
    told = random.randint(0, applied)
    source.land(lake, spec, range(told + 1), BEFORE)
    source.land(lake, spec, range(told + 1, len(source.files)), AFTER)
    job.load()
    for number in range(1, applied + 1):
        job.apply(number)
    before = own_columns(lake, spec)
    lake.done(spec, adopting())
    assert own_columns(lake, spec) == before
    lake.done(spec)
    since = applied if job.ordered else told  # without an order files that come again are newer, their deletes too
    wanted = after(before, source, range(since + 1, len(source.files)))
    for options in (None, JobOptions(action=Rebuild())):
        if options is not None:
            lake.done(spec, options)
        assert lake.replica(spec) == values(source.states[-1])
        assert own_columns(lake, spec) == wanted
        verified(lake, spec)


def test_columns_that_updates_would_empty_are_refused(tmp_path: Path) -> None:
    lake, source = Lake(tmp_path), Landed.of("1", files=2)
    spec = spec_of(schema_evolution=SchemaEvolution(dropped_column="null"))
    source.land(lake, spec, range(3), BEFORE)
    MergeJob(lake.layout(spec).replica, source, ordered=True).load()
    found = lake.result(spec, adopting())
    assert found.error is not None
    assert (found.error.code, "surrogate, loaded" in found.error.message) == ("ADOPT_REFUSED", True), found.error


def test_a_reload_from_files_loses_columns_of_the_other_job(tmp_path: Path) -> None:
    lake, source, spec = Lake(tmp_path), Landed.of("1", files=2), spec_of()
    job = MergeJob(lake.layout(spec).replica, source, ordered=True)
    source.land(lake, spec, range(2), BEFORE)
    source.land(lake, spec, range(2, 3), AFTER)
    job.load()
    job.apply(1)
    lake.done(spec, adopting())
    lake.done(spec)
    assert any(own != (None, None) for own in own_columns(lake, spec).values())
    lake.done(spec, JobOptions(action=Reload(confirmed=True)))
    assert lake.replica(spec) == values(source.states[-1])
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    assert {(row.get("surrogate"), row.get("loaded")) for row in rows} == {(None, None)}
