"""The simulator's files: names, shapes, troubles, determinism."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.tools.simulate.simulator import prepare, simulate
from airflow_gddl.tools.simulate.source import demo_spec, propose_keys, read_table
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape, Troubles

PEOPLE = pa.table(
    {
        "id": pa.array(range(1, 41), pa.int32()),
        "name": [f"name {i}" for i in range(40)],
        "age": pa.array([20 + i for i in range(40)], pa.int16()),
    }
)


@pytest.fixture
def spec(tmp_path: Path) -> SimulateSpec:
    return SimulateSpec(
        input={"people": PEOPLE},
        landing=tmp_path / "landing",
        schema="hr",
        tables={"people": TableShape(keys=("id",))},
        changes=20,
    )


def names(spec: SimulateSpec) -> list[str]:
    folder = spec.landing / "hr" / "people"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def rows(spec: SimulateSpec, pattern: str = "2*.parquet") -> list[dict[str, Any]]:
    paths = sorted((spec.landing / "hr" / "people").rglob(pattern))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_files_have_the_service_s_names(spec: SimulateSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_gddl.tools.simulate.simulator.ROWS_PER_LOAD_FILE", 4)
    simulate(replace(spec, rounds=1))
    assert names(spec) == [
        "20240101-012015001.parquet",
        "20240101-014715001.parquet",
        *(f"LOAD0000000{n}.parquet" for n in "123456789A"),
    ]


def test_a_full_load_holds_the_input_without_sequence(spec: SimulateSpec) -> None:
    simulate(replace(spec, rounds=0))
    loaded = pq.read_table(spec.landing / "hr/people/LOAD00000001.parquet")
    assert loaded.schema.names == ["id", "name", "age", "transact_seq", "dms_timestamp"]
    assert loaded.select(["id", "name", "age"]).equals(PEOPLE)
    assert loaded["transact_seq"].null_count == 40
    assert loaded.schema.field("dms_timestamp").type == pa.timestamp("us", "UTC")


def test_changes_have_a_growing_sequence_of_35_digits_and_share_commit_times(spec: SimulateSpec) -> None:
    report = simulate(replace(spec, changes=200)).report().tables["people"]
    written = rows(spec)
    sequences = [row["transact_seq"] for row in written]
    assert sequences == sorted(set(sequences))
    assert {len(s) for s in sequences if s.isdigit()} == {35}
    assert all(s.startswith(f"{row['dms_timestamp']:%Y%m%d%H%M%S}") for s, row in zip(sequences, written, strict=True))
    assert len({row["dms_timestamp"] for row in written}) < len(written) / 2
    assert report.changes == {op: sum(row["Op"] == op for row in written) for op in "IUD"}
    assert report.changes["U"] > report.changes["I"] > report.changes["D"] > 0
    assert next(iter(written[0])) == "Op"


def test_deletes_carry_only_keys(spec: SimulateSpec) -> None:
    simulate(replace(spec, rounds=1))
    deleted = [row for row in rows(spec) if row["Op"] == "D"]
    assert {(row["name"], row["age"]) for row in deleted} == {(None, None)}
    assert None not in {row["id"] for row in deleted}


def test_late_files_come_a_round_later_under_their_old_names(spec: SimulateSpec) -> None:
    simulator = prepare(replace(spec, rounds=2, files_per_round=4, troubles=Troubles(late=0.25)))
    simulator.land(0)
    first = {path.name for path in simulator.land(1)}
    assert len(first) == 3
    assert simulator.report().tables["people"].pending_files == 1
    second = sorted(path.name for path in simulator.land(2))
    assert len(second) == 5
    assert second[0] < "20240101-02" < second[1]
    assert simulator.report().tables["people"].pending_files == 0


def test_repeated_files_bring_known_rows(spec: SimulateSpec) -> None:
    report = simulate(replace(spec, troubles=Troubles(repeated=0.5))).report().tables["people"]
    written = [repr(row) for row in rows(spec)]
    assert len(written) - len(set(written)) == report.expected_redelivered > 0
    assert len(set(written)) == sum(report.changes.values())


def test_out_of_order_rows_cross_files(spec: SimulateSpec) -> None:
    simulate(replace(spec, rounds=1, troubles=Troubles(out_of_order=True)))
    paths = sorted((spec.landing / "hr" / "people").glob("2*"))
    first, second = (pq.read_table(path)["transact_seq"].to_pylist() for path in paths)
    assert first != sorted(first)
    assert max(first) > min(second)


def test_ties_share_a_sequence_and_differ(spec: SimulateSpec) -> None:
    report = simulate(replace(spec, rounds=1, troubles=Troubles(ties=3))).report().tables["people"]
    by_sequence: dict[str, list[dict[str, Any]]] = {}
    for row in rows(spec):
        by_sequence.setdefault(row["transact_seq"], []).append(row)
    tied = [pair for pair in by_sequence.values() if len(pair) > 1]
    assert len(tied) == report.troubles["ties"] == 3
    assert all(a["id"] == b["id"] and a != b for a, b in tied)


def test_rows_for_the_quarantine_are_counted_and_without_effect_on_the_truth(spec: SimulateSpec) -> None:
    simulator = prepare(replace(spec, rounds=1, troubles=Troubles(unknown_op=3)))
    simulator.land(0)
    simulator.land(1)
    clean = prepare(replace(spec, rounds=1, landing=spec.landing / "clean"))
    clean.land(0)
    clean.land(1)
    report = simulator.report().tables["people"]
    assert report.expected_quarantined == 3
    assert sum(row["Op"] == "X" for row in rows(spec)) == 3
    assert simulator.truth("people").equals(clean.truth("people"))


def test_another_seed_writes_other_bytes(spec: SimulateSpec) -> None:
    simulate(spec)
    simulate(replace(spec, seed=1, landing=spec.landing / "other"))
    assert rows(spec) != rows(replace(spec, landing=spec.landing / "other"))


def test_a_folder_of_files_is_input_enough(spec: SimulateSpec, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "cities.csv").write_text("code,name,size\nB,Berlin,NA\nP,Paris,2\n")
    pq.write_table(PEOPLE, source / "people.parquet")
    shapes = propose_keys({name: read_table(source / name) for name in ("cities.csv", "people.parquet")})
    tables = {name.partition(".")[0]: table_schema for name, table_schema in shapes.items()}
    assert {name: table_schema.keys for name, table_schema in tables.items()} == {
        "cities": ("code",),
        "people": ("id",),
    }
    simulator = prepare(replace(spec, input=source, tables=tables, rounds=0))
    simulator.land(0)
    assert simulator.truth("cities").to_pylist() == [
        {"code": "B", "name": "Berlin", "size": None},
        {"code": "P", "name": "Paris", "size": 2},
    ]


def test_tables_without_a_key_get_a_surrogate() -> None:
    shapes = propose_keys(
        {"t": pa.table({"a": [1, 1], "b": ["x", "x"]}), "p": pa.table({"a": [1, 1], "b": ["x", "y"]})}
    )
    assert shapes == {"t": TableShape(keys=("id",), surrogate="id"), "p": TableShape(keys=("b",))}


def test_the_truth_is_written_outside_landing(spec: SimulateSpec, tmp_path: Path) -> None:
    simulate(spec, truth=tmp_path / "truth")
    simulator = simulate(replace(spec, landing=tmp_path / "again"))
    assert pq.read_table(tmp_path / "truth" / "people.parquet").equals(simulator.truth("people"))
    with pytest.raises(MetadataError, match="inside landing"):
        simulate(spec, truth=spec.landing / "truth")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tables": {}}, "SIMULATE_INVALID"),
        ({"troubles": Troubles(late=1.5)}, "SIMULATE_INVALID"),
        ({"rounds": -1}, "SIMULATE_INVALID"),
        ({"tables": {"nobody": TableShape(keys=())}}, "SIMULATE_INVALID"),
        ({"tables": {"people": TableShape(keys=("nothing",))}}, "SIMULATE_INVALID"),
        ({"input": {"people": pa.table({"id": [1, 1]})}}, "SIMULATE_INVALID"),
        ({"input": {"people": pa.table({"id": [1, None]})}}, "SIMULATE_INVALID"),
        ({"input": {"people": pa.table({"id": [1], "OP": [1]})}}, "SIMULATE_INVALID"),
        ({"input": {"people": pa.table({"id": [1], "ID": [1]})}}, "SIMULATE_INVALID"),
        ({"input": Path("no/such/folder")}, "SIMULATE_INVALID"),
    ],
)
def test_what_can_t_be_simulated_is_refused(spec: SimulateSpec, change: dict[str, Any], code: str) -> None:
    with pytest.raises(MetadataError) as caught:
        prepare(replace(spec, **change))
    assert caught.value.code == code
    assert not spec.landing.exists()


def test_steps_out_of_turn_and_used_folders_are_refused(spec: SimulateSpec) -> None:
    simulator = prepare(spec)
    for number in (-1, 1):
        with pytest.raises(ValueError, match="round 0 is due"):
            simulator.land(number)
    simulator.land(0)
    for number in (0, 2):
        with pytest.raises(ValueError, match="round 1 is due"):
            simulator.land(number)
    with pytest.raises(MetadataError, match=r"\[SIMULATE_INVALID\]"):
        simulate(spec)


def test_the_demo_s_keys_are_keys(tmp_path: Path) -> None:
    simulator = prepare(demo_spec(tmp_path))
    counts = {name: simulator.truth(name).num_rows for name in ("airlines", "airports", "flights", "planes", "weather")}
    assert counts == {"airlines": 16, "airports": 1458, "flights": 336_776, "planes": 3322, "weather": 26_115}
    assert simulator.truth("flights").schema.field("id").type == pa.int64()
    assert simulator.truth("weather")["wind_gust"].null_count > 0
