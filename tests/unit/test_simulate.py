"""The simulator's files: names, shapes, troubles, determinism."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.simulate.simulator import prepare, simulate
from airflow_gddl.simulate.source import demo_spec, propose_keys, read_table
from airflow_gddl.simulate.spec import Delivery, OpMix, SchemaEvent, SimulateSpec, TableShape, Troubles
from tests.harness.typed_tables import with_typed_columns

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


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_files_have_the_service_s_names(spec: SimulateSpec) -> None:
    simulate(replace(spec, rounds=1, delivery=Delivery(rows_per_load_file=4)))
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


def test_deletes_carry_only_keys_by_default(spec: SimulateSpec) -> None:
    bare = replace(spec, rounds=1, mix=OpMix(update=0, insert=0, delete=1))
    simulate(bare)
    assert {(row["name"], row["age"]) for row in rows(bare)} == {(None, None)}
    whole = replace(bare, landing=spec.landing / "whole", delivery=Delivery(deletes_carry_only_keys=False))
    simulate(whole)
    assert None not in {row["name"] for row in rows(whole)}


def test_before_images_hold_the_row_before_an_update(spec: SimulateSpec) -> None:
    simulate(replace(spec, rounds=1, mix=OpMix(update=1, insert=0, delete=0), delivery=Delivery(before_images="BI_")))
    state = {row["id"]: row for row in PEOPLE.to_pylist()}
    for row in rows(spec):
        assert {name: row[f"BI_{name}"] for name in PEOPLE.schema.names} == state[row["id"]]
        state[row["id"]] = {name: row[name] for name in PEOPLE.schema.names}


@pytest.mark.parametrize(
    ("delivery", "expected"),
    [
        (Delivery(date_partition="YYYYMMDD"), "2024/01/01/"),
        (Delivery(date_partition="DDMMYYYY", date_delimiter="dash"), "01-01-2024/"),
        (Delivery(date_partition="YYYYMMDDHH", date_delimiter="none"), "2024010101/"),
        (Delivery(date_partition="YYYYMM", date_delimiter="underscore"), "2024_01/"),
    ],
)
def test_date_folders(spec: SimulateSpec, delivery: Delivery, expected: str) -> None:
    simulate(replace(spec, rounds=1, delivery=delivery))
    found = [name for name in names(spec) if "LOAD" not in name]
    assert {name[: -len("20240101-012515001.parquet")] for name in found} == {expected}


@pytest.mark.parametrize(("style", "mark"), [("name", "_"), ("folder", "/")])
def test_segments_of_a_parallel_load(spec: SimulateSpec, style: Any, mark: str) -> None:
    simulate(replace(spec, rounds=0, delivery=Delivery(segments=2, segment_style=style, rows_per_load_file=10)))
    assert names(spec) == [f"SEGMENT{s}{mark}LOAD0000000{n}.parquet" for s in (1, 2) for n in (1, 2)]


def test_csv_quotes_what_could_be_taken_for_something_else(spec: SimulateSpec) -> None:
    odd = pa.table({"id": [1, 2, 3, 4], "text": ['say "x", y', None, "NULL", ""], "flag": [True, False, None, True]})
    given = replace(spec, input={"people": odd}, rounds=0, delivery=Delivery(format="csv.gz", csv_header=True))
    simulate(given)
    lines = gzip.decompress((spec.landing / "hr/people/LOAD00000001.csv.gz").read_bytes()).decode().splitlines()
    when = "2024-01-01 00:00:00.000000"
    assert lines == [
        "id,text,flag,transact_seq,dms_timestamp",
        f'1,"say ""x"", y",true,NULL,{when}',
        f"2,NULL,false,NULL,{when}",
        f'3,"NULL",NULL,NULL,{when}',
        f'4,"",true,NULL,{when}',
    ]


def test_late_files_come_a_round_later_under_their_old_names(spec: SimulateSpec) -> None:
    simulator = prepare(replace(spec, rounds=2, delivery=Delivery(files_per_round=4), troubles=Troubles(late=0.25)))
    simulator.land(0)
    first = {path.name for path in simulator.land(1)}
    assert len(first) == 3
    assert simulator.report().tables["people"].pending_files == 1
    second = sorted(path.name for path in simulator.land(2))
    assert len(second) == 5
    assert second[0] < "20240101-02" < second[1]
    assert simulator.report().tables["people"].pending_files == 0


def test_torn_files_are_whole_a_round_later(spec: SimulateSpec) -> None:
    simulator = prepare(replace(spec, rounds=2, troubles=Troubles(torn=0.5)))
    simulator.land(0)
    landed = simulator.land(1)
    unreadable = [path for path in landed if not readable(path)]
    assert len(unreadable) == 1
    again = simulator.land(2)
    assert unreadable[0] in again
    assert all(readable(path) for path in landed)


def readable(path: Path) -> bool:
    try:
        return bool(pq.read_table(path).num_rows)
    except pa.ArrowInvalid:
        return False


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


@pytest.mark.parametrize(("before_images", "phantoms"), [("BI_", False), (None, True)])
def test_key_updates_leave_phantoms_only_without_before_images(
    spec: SimulateSpec, before_images: str | None, phantoms: bool
) -> None:
    mix = OpMix(update=1, insert=0, delete=0)
    delivery = Delivery(before_images=before_images)
    simulator = prepare(replace(spec, rounds=1, mix=mix, delivery=delivery, troubles=Troubles(key_updates=0.5)))
    simulator.land(0)
    simulator.land(1)
    report = simulator.report().tables["people"]
    moved = report.troubles["key_updates"]
    assert moved > 0
    assert report.phantoms == (moved if phantoms else 0)
    assert simulator.truth("people", phantoms=False).num_rows == 40
    assert simulator.truth("people").num_rows == report.truth_rows == 40 + report.phantoms


def test_tricky_keys_differ_by_case_space_or_form(spec: SimulateSpec) -> None:
    table = pa.table({"code": ["Äb", "cd"], "n": [1, 2]})
    tables = {"people": TableShape(keys=("code",))}
    mix = OpMix(update=0, insert=1, delete=0)
    given = replace(
        spec, input={"people": table}, tables=tables, mix=mix, changes=3, troubles=Troubles(tricky_keys=True)
    )
    simulate(replace(given, rounds=1))
    made = {row["code"] for row in rows(spec)}
    assert len(made) == 3
    assert all(code.startswith(("Äb", "äB", "A\u0308b", "cd", "CD")) for code in made)


def test_rows_for_the_quarantine_are_counted_and_without_effect_on_the_truth(spec: SimulateSpec) -> None:
    bad = Troubles(unknown_op=1, null_key=2, null_sequence=1, unparsable_sequence=1, bad_value=2)
    simulator = prepare(replace(spec, rounds=1, troubles=bad))
    simulator.land(0)
    simulator.land(1)
    clean = prepare(replace(spec, rounds=1, landing=spec.landing / "clean"))
    clean.land(0)
    clean.land(1)
    report = simulator.report().tables["people"]
    written = rows(spec)
    assert report.expected_quarantined == 7
    assert sum(row["Op"] == "X" for row in written) == 1
    assert sum(row["id"] is None for row in written) == 2
    assert sorted(str(row["transact_seq"])[:3] for row in written if not str(row["transact_seq"]).isdigit()) == [
        "Non",
        "not",
    ]
    assert sum(row["age"] == "not-a-value" for row in written) == 2
    assert simulator.truth("people").equals(clean.truth("people"))


def test_unreadable_empty_and_hidden_files(spec: SimulateSpec) -> None:
    simulate(replace(spec, rounds=1, troubles=Troubles(truncated_file=True, empty_file=True, clutter=True)))
    folder = spec.landing / "hr" / "people"
    found = names(spec)
    changes = [folder / name for name in found if name.startswith("2024") and name.endswith(".parquet")]
    assert [readable(path) for path in changes] == [True, True, False, False]
    assert [path.stat().st_size == 0 for path in changes] == [False, False, False, True]
    assert {".LOAD00000001.parquet", "LOAD00000001.parquet.tmp", "_SUCCESS"} < set(found)


def test_schema_events_show_in_the_files_that_follow(spec: SimulateSpec) -> None:
    events = (
        SchemaEvent(round=1, kind="add_column", column="email"),
        SchemaEvent(round=2, kind="drop_column", column="age"),
        SchemaEvent(round=2, kind="rename_case", column="name"),
        SchemaEvent(round=3, kind="reorder"),
    )
    simulator = prepare(replace(spec, events=events, delivery=Delivery(files_per_round=1)))
    simulator.land(0)
    seen = [pq.read_schema(simulator.land(n)[0]).names[1:-2] for n in (1, 2, 3)]
    assert seen == [["id", "name", "age", "email"], ["id", "NAME", "email"], ["NAME", "email", "id"]]
    assert simulator.truth("people").schema.names == ["id", "name", "age", "email"]


def test_widening_and_nested_fields(spec: SimulateSpec) -> None:
    events = (
        SchemaEvent(round=1, kind="widen", column="t_int32"),
        SchemaEvent(round=1, kind="add_nested_field", table="people"),
    )
    simulator = prepare(replace(spec, input={"people": with_typed_columns(PEOPLE)}, events=events, changes=60))
    loaded = pq.read_schema(simulator.land(0)[0])
    changed = pq.read_schema(simulator.land(1)[0])
    assert (loaded.field("t_int32").type, changed.field("t_int32").type) == (pa.int32(), pa.int64())
    assert [f.name for f in changed.field("t_struct").type] == ["a", "b", "added_2"]
    assert max(abs(v) for v in simulator.truth("people")["t_int32"].to_pylist() if v is not None) > 2**31
    assert loaded.field("t_uint8").type == pa.uint8()
    assert loaded.field("t_decimal_38_10").type == pa.decimal128(38, 10)


def test_a_reload_rewrites_the_load_files_with_the_present_rows(spec: SimulateSpec) -> None:
    delivery = Delivery(rows_per_load_file=10)
    mix = OpMix(update=0, insert=0, delete=1)
    simulator = prepare(replace(spec, rounds=2, mix=mix, reload_rounds=(2,), delivery=delivery))
    before = {path.name for path in simulator.land(0)}
    simulator.land(1)
    held = simulator.truth("people")
    rewritten = [path for path in simulator.land(2) if path.name in before]
    assert [path.name for path in rewritten] == ["LOAD00000001.parquet", "LOAD00000002.parquet"]
    loaded = pa.concat_tables(pq.read_table(path) for path in rewritten).select(PEOPLE.schema.names)
    assert loaded.equals(held)
    assert [name for name in names(spec) if "LOAD" in name] == [path.name for path in rewritten]


def test_partial_updates_name_what_they_carry(spec: SimulateSpec) -> None:
    mix = OpMix(update=1, insert=0, delete=0)
    simulate(replace(spec, rounds=1, mix=mix, delivery=Delivery(columns_to_update="cols")))
    for row in rows(spec):
        carried = set(row["cols"].split(","))
        assert carried <= {"name", "age"}
        assert all(row[name] is None for name in {"name", "age"} - carried)


def test_the_metadata_row_fits_the_contract(spec: SimulateSpec) -> None:
    delivery = Delivery(format="csv", before_images="BI_", sequence_column="seq", date_partition="YYYYMMDD")
    row = prepare(replace(spec, delivery=delivery)).metadata_row("people")
    assert decode(TableSpec, row).name == "people"
    options: Any = row.pop("options")
    assert row == {"table": "hr.people", "keys": ["id"], "sequence_by": ["seq"], "before_image_prefix": "BI_"}
    assert decode(DmsOptions, options).types == {"id": "int", "age": "smallint"}
    names = ["id", "name", "age"]
    assert options["csv_columns"] == [*names, "seq", "dms_timestamp", *(f"BI_{name}" for name in names)]


def test_another_seed_writes_other_bytes(spec: SimulateSpec) -> None:
    simulate(spec)
    simulate(replace(spec, seed=1, landing=spec.landing / "other"))
    assert rows(spec) != rows(replace(spec, landing=spec.landing / "other"))


def test_a_later_process_resumes_an_earlier_one(spec: SimulateSpec) -> None:
    troubled = replace(spec, troubles=Troubles(late=0.5, repeated=0.5), reload_rounds=(3,))
    simulate(replace(troubled, landing=spec.landing / "one"))
    several = replace(troubled, landing=spec.landing / "several")
    prepare(several).land(0)
    for number in (1, 2, 3):
        prepare(several, landed=number).land(number)
    assert digests(spec.landing / "one") == digests(spec.landing / "several")


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
    simulator = prepare(spec, landed=4)
    assert pq.read_table(tmp_path / "truth" / "people.parquet").equals(simulator.truth("people"))
    with pytest.raises(MetadataError, match="inside landing"):
        simulate(spec, truth=spec.landing / "truth")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tables": {}}, "SIMULATE_SPEC_INVALID"),
        ({"troubles": Troubles(late=1.5)}, "SIMULATE_SPEC_INVALID"),
        ({"mix": OpMix(update=0, insert=0, delete=0)}, "SIMULATE_SPEC_INVALID"),
        ({"reload_rounds": (9,)}, "SIMULATE_SPEC_INVALID"),
        ({"delivery": Delivery(format="csv"), "troubles": Troubles(torn=0.5)}, "SIMULATE_SPEC_INVALID"),
        (
            {"delivery": Delivery(format="csv"), "events": (SchemaEvent(round=1, kind="reorder"),)},
            "SIMULATE_SPEC_INVALID",
        ),
        ({"events": (SchemaEvent(round=1, kind="widen", table="people", column="name"),)}, "SIMULATE_EVENT_IMPOSSIBLE"),
        ({"tables": {"nobody": TableShape(keys=())}}, "SIMULATE_INPUT_MISSING"),
        ({"tables": {"people": TableShape(keys=("nothing",))}}, "SIMULATE_KEYS_INVALID"),
        ({"input": {"people": pa.table({"id": [1, 1]})}}, "SIMULATE_KEYS_INVALID"),
        ({"input": {"people": pa.table({"id": [1, None]})}}, "SIMULATE_KEYS_INVALID"),
        ({"input": {"people": pa.table({"id": [1], "OP": [1]})}}, "SIMULATE_COLUMN_TAKEN"),
        ({"input": {"people": pa.table({"id": [1], "ID": [1]})}}, "SIMULATE_COLUMN_TAKEN"),
        ({"input": Path("no/such/folder")}, "SIMULATE_INPUT_MISSING"),
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
        with pytest.raises(MetadataError, match=r"\[SIMULATE_WRONG_ROUND\]"):
            simulator.land(number)
    simulator.land(0)
    for number in (0, 2):
        with pytest.raises(MetadataError, match="round 1 is due"):
            simulator.land(number)
    with pytest.raises(MetadataError, match=r"\[SIMULATE_LANDING_NOT_EMPTY\]"):
        simulate(spec)


def test_an_emptied_table_continues(spec: SimulateSpec) -> None:
    mix = OpMix(update=0, insert=0, delete=1)
    simulator = prepare(replace(spec, mix=mix, changes=40, rounds=2, reload_rounds=(2,), troubles=Troubles(null_key=1)))
    simulator.land(0)
    simulator.land(1)
    assert simulator.truth("people").num_rows == 0
    reloaded = [path for path in simulator.land(2) if "LOAD" in path.name]
    assert [pq.read_metadata(path).num_rows for path in reloaded] == [0]
    again = simulator.report().tables["people"].changes
    assert again["I"] == again["D"] - 40 > 0


def test_the_demo_s_keys_are_keys(tmp_path: Path) -> None:
    simulator = prepare(demo_spec(tmp_path))
    counts = {name: simulator.truth(name).num_rows for name in ("airlines", "airports", "flights", "planes", "weather")}
    assert counts == {"airlines": 16, "airports": 1458, "flights": 336_776, "planes": 3322, "weather": 26_115}
    assert simulator.truth("flights").schema.field("id").type == pa.int64()
    assert simulator.truth("weather")["wind_gust"].null_count > 0
