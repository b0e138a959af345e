"""The kit itself: what its writers draw, that all of it matters, and that its judge tells right from wrong."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import botocore
import pytest

from tests.conformance.delivery import Delivery, Either, Outcome, Uncertain
from tests.conformance.history import Column
from tests.conformance.judging import canonical, judge
from tests.conformance.kinds import KINDS
from tests.conformance.names import NAMES, Names
from tests.conformance.playing import Case, cases_of, covering_of
from tests.conformance.writers import dms

HERE = Path(__file__).parent
SEED = 1


def _modules() -> Iterator[Path]:
    yield from (HERE / "writers").glob("*.py")
    yield from (
        HERE / f"{name}.py" for name in ("history", "delivery", "judging", "covering", "kinds", "names", "playing")
    )


@pytest.mark.parametrize("module", _modules(), ids=lambda path: path.stem)
def test_models_and_judge_import_no_reader(module: Path) -> None:
    tree = ast.parse(module.read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert [name for name in named if name.startswith(("spark_jobs", "airflow_gddl"))] == []


def test_each_setting_of_dms_is_drawn_or_has_a_reason() -> None:
    packed = Path(botocore.__file__).parent / "data" / "dms" / "2016-01-01" / "service-2.json.gz"
    api = set(json.loads(gzip.decompress(packed.read_bytes()))["shapes"]["S3Settings"]["members"])
    assert api - set(dms.SETTINGS) - set(dms.NOT_DRAWN) == set()
    assert set(dms.NOT_DRAWN) & set(dms.SETTINGS) == set()


@pytest.mark.parametrize("writer", KINDS)
def test_cases_cover_every_pair_that_is_possible(writer: str) -> None:
    cases, array = cases_of(writer, SEED), covering_of(writer)
    covered = array.covered([case.given for case in cases])
    print(f"\n{writer}: {len(cases)} cases cover {covered:,} of {len(array.possible):,} pairs of settings and events")
    assert covered == len(array.possible) > 500
    assert all(array.refused.values())


@pytest.mark.parametrize("writer", KINDS)
def test_each_value_changes_what_a_reader_gets(writer: str) -> None:
    """A value that makes no difference in any case would be counted as covered and prove nothing."""
    cases_of(writer, SEED)  # which finds what can't be combined
    missing = {(name, at) for name, values in KINDS[writer].factors.items() for at in range(1, len(values))}
    missing -= _never(writer)
    for seed in range(SEED, SEED + 4):
        for case in cases_of(writer, seed) if missing else ():
            for name, at in sorted(missing):
                if case.given[name] == KINDS[writer].factors[name][at] and _matters(case, name):
                    missing.discard((name, at))
    assert sorted((name, KINDS[writer].factors[name][at]) for name, at in missing) == []


def _never(writer: str) -> set[tuple[str, int]]:
    """Values that can't be combined with anything, e.g. events that a source never has."""
    found = {choice for pair in covering_of(writer).possible for choice in pair}
    return {(name, at) for name, values in KINDS[writer].factors.items() for at in range(len(values))} - found


def _matters(case: Case, name: str) -> bool:
    usual = {**case.given, name: KINDS[case.kind].factors[name][0]}
    if KINDS[case.kind].refusal(usual):  # other settings need the value
        plain = {n: values[0] for n, values in KINDS[case.kind].settings.items()}
        case, usual = replace(case, given={**case.given, **plain, name: case.given[name]}), {**case.given, **plain}
        if KINDS[case.kind].refusal(usual) or KINDS[case.kind].refusal(case.given):
            return False
    one, other = case.delivery(), replace(case, given=usual).delivery()
    return (one.arrivals, one.right, one.maybe) != (other.arrivals, other.right, other.maybe)


@pytest.mark.parametrize("names", NAMES[1:])
def test_names_are_all_that_is_renamed(names: Names) -> None:
    plain = cases_of("debezium_postgres", SEED)[3].delivery()
    delivery = replace(cases_of("debezium_postgres", SEED)[3], names=names).delivery()
    after = {one.name: other.name for one, other in zip(plain.columns, delivery.columns, strict=True)}
    assert {name for name, other in after.items() if name == other} <= {"id", "code", "part", "note"}
    assert len(set(after.values())) == len(after) > 10
    assert delivery.right == {key: {after[n]: v for n, v in row.items()} for key, row in plain.right.items()}
    assert delivery.table in ("message", "heartbeat", "transaction", "schema_changes")
    assert all(f'"table":"{delivery.table}"'.encode() in file.data for file in delivery.arrivals[0].files)


def test_a_seed_gives_the_same_files_again() -> None:
    first = cases_of("exports", 7)[3].delivery()
    cases_of.cache_clear()
    assert cases_of("exports", 7)[3].delivery() == first != cases_of("exports", 8)[3].delivery()


def _delivery(**changed: object) -> Delivery:
    columns = (Column("id", "int8"), Column("v", "text"))
    right = {(1,): {"id": 1, "v": "a"}, (2,): {"id": 2, "v": Either(("b", None))}}
    plain = Delivery("dms", {}, ("id",), columns, (), right, maybe={(3,): {"id": 3, "v": "c"}})
    return replace(plain, **changed)  # type: ignore[arg-type] # fields by name


_A, _B = {"id": 1, "v": "a"}, {"id": "2", "v": None}


@pytest.mark.parametrize(
    ("rows", "said", "refused", "put_aside", "mark"),
    [
        ([_A, _B], {}, "", 0, "PASS"),
        ([_A, {"ID": 1, "id": 2, "v": "b"}, {"id": 3, "v": "c"}], {}, "", 0, "PASS"),
        ([_A], {}, "", 0, "WRONG"),
        ([_A, _B, _B], {}, "", 0, "WRONG"),
        ([_A, _B, {"id": 3, "v": "d"}], {}, "", 0, "WRONG"),
        ([_A, _B, {"id": 4, "v": "d"}], {"OTHER": 1}, "", 0, "WRONG"),
        ([{"id": 1, "v": ""}, _B], {}, "", 0, "WRONG"),
        ([{"id": 1, "v": "z"}, _B], {"KNOWN": 1}, "", 0, "LOUD"),
        ([_A, {"id": 2, "v": "z"}], {"KNOWN": 1}, "", 0, "WRONG"),
        ([_A], {"BAD": 1}, "", 1, "REFUSED"),
        ([], {"BAD": 1}, "", 1, "WRONG"),
        (None, {}, "BROKEN", 0, "REFUSED"),
        ([_A, _B], {}, "BROKEN", 0, "REFUSED"),
        ([_A, _B], {}, "KNOWN", 0, "LOUD"),
    ],
)
def test_an_outcome_is_judged_right_loud_or_silent(
    rows: list[dict[str, object]] | None, said: dict[str, int], refused: str, put_aside: int, mark: str
) -> None:
    doubt = Uncertain(frozenset({(1,)}), frozenset({"KNOWN"}), "an example")
    outcome = Outcome(None if rows is None else tuple(rows), said, refused, put_aside)
    assert judge(_delivery(uncertain=(doubt,)), outcome).mark == mark


def test_values_of_one_meaning_are_equal() -> None:
    assert canonical("longtime", "-30:00:01") == timedelta(hours=-30, seconds=-1)
    assert canonical("longtime", "-108001000000") == "-108001000000"
    assert canonical("timestamptz", "2025-01-01T01:00:00+01:00") == datetime(2025, 1, 1)  # noqa: DTZ001 - UTC
    assert canonical("decimal", "1.10") == canonical("decimal", 1) + canonical("decimal", "0.1")
    assert canonical("int8", "007x") == "007x"
    assert canonical("text", "") is not None
