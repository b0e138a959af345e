"""`depends_on`: cycles of any length name every member, and nothing else."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import cyclic
from tests.unit.metadata_folder import loaded, row_file


def spec(table: str, *depends_on: str) -> TableSpec:
    return TableSpec(table=table, keys=("id",), depends_on=depends_on)


def test_each_member_of_each_cycle_is_named() -> None:
    specs = [
        spec("s.a", "s.b"),
        spec("s.b", "s.c"),
        spec("s.c", "s.a"),
        spec("s.x", "s.y"),
        spec("s.y", "s.x", "s.a"),
        spec("s.self", "s.self"),
        spec("s.leaf", "s.a"),
        spec("s.root"),
    ]
    found = cyclic(specs)
    assert sorted(found) == ["s.a", "s.b", "s.c", "s.self", "s.x", "s.y"]
    assert found["s.b"].message == "a cycle of 3: s.a, s.b, s.c"
    assert found["s.y"].message == "a cycle of 2: s.x, s.y"


def test_two_cycles_that_share_a_table_are_one() -> None:
    found = cyclic([spec("s.a", "s.b", "s.c"), spec("s.b", "s.a"), spec("s.c", "s.a")])
    assert {problem.message for problem in found.values()} == {"a cycle of 3: s.a, s.b, s.c"}


def test_a_chain_or_a_cycle_may_be_as_long_as_the_catalog() -> None:
    chain = [spec(f"s.t{i}", f"s.t{i + 1}") for i in range(10_000)]
    assert cyclic(chain) == {}
    found = cyclic([*chain, spec("s.t10000", "s.t0")])
    assert len(found) == 10_001
    assert found["s.t7"].message == "a cycle of 10001: s.t0, s.t1, s.t10, s.t100, s.t1000 and 9996 more"


def test_a_diamond_is_no_cycle() -> None:
    assert cyclic([spec("s.a", "s.b", "s.c"), spec("s.b", "s.d"), spec("s.c", "s.d"), spec("s.d")]) == {}


def test_a_cycle_stops_its_members_alone(tmp_path: Path) -> None:
    rows = ["{table: s.a, keys: [id], depends_on: [s.b]}", "{table: s.b, keys: [id], depends_on: [s.a]}"]
    rows += ["{table: s.c, keys: [id], depends_on: [s.a]}"]
    catalog = loaded(tmp_path, {"tables/a.yaml": row_file(*rows)})
    assert [(p.code, p.table, p.line) for p in catalog.problems] == [
        ("FIELD_VALUE", "s.a", 3),
        ("FIELD_VALUE", "s.b", 4),
    ]
    assert [item.table for item in catalog.tables] == ["s.c"]


def test_a_bad_row_or_a_bad_file_does_not_take_along_what_depends_on_it(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "tables/a.yaml": row_file(
            "{table: s.a, keys: [id], nope: 1}", "{table: s.b, keys: [id], depends_on: [s.a, s.z]}"
        ),
        "tables/z.yaml": "nope: 1\n" + row_file("{table: s.z, keys: [id]}"),
    }
    catalog = loaded(tmp_path, files)
    assert [problem.code for problem in catalog.problems] == ["FIELD_UNKNOWN", "FIELD_UNKNOWN"]
    assert [item.table for item in catalog.tables] == ["s.b"]
