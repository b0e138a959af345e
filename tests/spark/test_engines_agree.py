"""Both engines, and both ways of commit, on the same files: the same tables, row for row; each engine goes on with what
the other has begun.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import CommitMethod, SchemaEvolution
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.examples import at_random, drawn, examples, rich
from tests.harness.lake import Lake
from tests.harness.landing import FileForm, write
from tests.harness.strategies import EVERYTHING, Case, Traits, cases, dense
from tests.oracle import Run
from tests.spark.breaking import Break, Breaker
from tests.spark.playing import Stage, named, verify
from tests.spark.table_lines import differences, everything, readable

SORTS = {
    "everything": (dense(replace(EVERYTHING, steps=True)), 3),
    "composite": (dense(Traits(composite=True, numbered=True, renames=True)), 1),
    "keyless": (dense(Traits(keyless=True, bad_rows=True, deletes=("hard",))), 1),
}
FEW_RUNS = {
    "everything": replace(SORTS["everything"][0], max_runs=1),
    "composite": replace(SORTS["composite"][0], max_runs=1, reloads=False),
    "keyless": replace(SORTS["keyless"][0], max_runs=1, reloads=False),
}
"""The same with fewer runs for as many changes; corrections and reloads are runs of their own."""
STEPS = ("plan", "quarantine", "append", "decide", "tombstones", "replica", "history", "commit")


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest) -> tuple[LocalPort, LocalPort]:
    if request.config.getoption("--tasks") != "both":
        pytest.skip("it takes both engines")
    return LocalPort("many"), LocalPort("one")


def histories(count: float) -> list[Case]:
    """Of all sorts, with columns that come later and a type that grows."""
    found = []
    for traits, weight in SORTS.values():
        found += drawn(cases(traits), examples(round(weight * count)))
    return named(found)


def few_runs() -> list[Case]:
    """Histories of all sorts, none of them plain."""
    return named([case for traits in FEW_RUNS.values() for case in rich(cases(traits), examples(1))])


def land(lake: Lake, case: Case, number: int) -> None:
    """The files of a run; `n` is narrow in some of them, by their names, so that a copy stays a copy."""
    for file in case.runs[number].files:
        narrow = sum(map(ord, file.name)) % 2
        is_text = any(isinstance(row.get("n"), str) for row in file.rows)
        kinds = {} if is_text else {"n": "int32" if narrow else "int64"}
        lake.land(case.spec, Run((file,)), {**case.types, **kinds})


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_engines_agree_after_each_run(many: bool, both: tuple[LocalPort, LocalPort], tmp_path: Path) -> None:
    """Everything but our own clock: replica, change table, history, tombstones, quarantine, `_gddl` included."""
    chosen = histories(0.6) if many else few_runs()
    lakes = [Lake(tmp_path / port.name) for port in both]
    specs = [case.spec for case in chosen]
    for number in range(max(len(case.runs) for case in chosen)):
        for port, lake in zip(both, lakes, strict=True):
            for case in chosen:
                if number < len(case.runs):
                    land(lake, case, number)
            done = lake.results(port, lake.job(specs, run_id=f"run-{number}"))
            assert {r.tasks for r in done.values()} == {port.name}
        for case in chosen:
            reported = [everything(lake.layout(case.spec)) for lake in lakes]
            assert differences(*reported) == [], f"{case.spec.table} after run {number}"
    _refresh(both, lakes, specs if many else specs[:1])


def _refresh(both: tuple[LocalPort, LocalPort], lakes: Sequence[Lake], specs: Sequence[TableSpec]) -> None:
    options = JobOptions(action=Rebuild())
    done = [lake.results(port, lake.job(specs, options, "refresh")) for port, lake in zip(both, lakes, strict=True)]
    first, second = ({t: (r.status, str(r.error)[:300]) for t, r in found.items()} for found in done)
    assert first == second
    assert {status for status, _ in first.values()} == {"succeeded"}, first
    for spec in specs:
        reported = [everything(lake.layout(spec)) for lake in lakes]
        assert differences(*reported) == [], f"{spec.table} after the refresh"


@pytest.mark.deep
@pytest.mark.parametrize("first", [0, 1])
def test_existing_table_changes_its_engine(first: int, both: tuple[LocalPort, LocalPort], tmp_path: Path) -> None:
    """With each run, broken off by the one and ended by the other: nothing is reread, nothing lost."""
    stage = Stage(both[0], Lake(tmp_path), histories(0.6))
    for number in range(max(len(case.runs) for case in stage.cases)):
        active = stage.playing(number)
        for case in active:
            land(stage.lake, case, number)
        breaker = Breaker({c.spec.table: Break(STEPS[i % len(STEPS)]) for i, c in enumerate(active)})
        job = stage.lake.job([case.spec for case in active], run_id=f"run-{number}")
        stage.lake.results(both[(first + number) % 2], job, breaker)
        again = stage.lake.results(both[(first + number + 1) % 2], replace(job, run_id=f"again-{number}"))
        stage.blame_failures(f"in run {number}", again)
        for case in active:
            if case.spec.table not in stage.wrong:
                stage.judge(case, number, None)
    for port in both:
        stage.port = port
        verify(stage)
    assert not stage.wrong, "\n" + stage.report()


COMMITTED: dict[str, Traits] = {
    "partial": Traits(partial=True, ties=False, steps=True),
    "composite": Traits(composite=True, numbered=True, renames=True),
    "everything": EVERYTHING,
    "conditions": Traits(conditions=True, renames=True),
    "rescued": Traits(partial=True, rescues=True),
    "keyless": Traits(keyless=True, bad_rows=True),
    "truncates": Traits(truncates=True),
    "generations": Traits(renames=True, reloads=True, most_reloads=3),
    "plain": Traits(),
}
TOGETHER = 16
"""Tables of one lake, which share their jobs."""


def committed(count: int) -> list[Case]:
    """Histories of all sorts in turn; some tables have deletion vectors, a change feed, partitions."""
    runs = 10 if count > len(COMMITTED) else 2
    sorts = [replace(traits, min_changes=8, max_changes=24, max_runs=runs) for traits in COMMITTED.values()]
    drawn_of = [rich(cases(traits), -(-count // len(sorts))) for traits in sorts]
    turns = [case for turn in zip(*drawn_of, strict=True) for case in turn]
    return [_as_table(number, case) for number, case in enumerate(named(turns[:count]))]


def _as_table(number: int, case: Case) -> Case:
    feed = {"delta.enableChangeDataFeed": "true"} if number % 2 == 0 else {}
    spec = replace(case.spec, size="large" if number % 3 == 0 else "small", table_properties=feed)
    parted = replace(spec, partition_by=("n",))
    if number % 4 == 1 and case.types.get("n") == "int64" and not check_table(parted):
        spec = parted
    return replace(case, spec=spec)


@pytest.mark.timeout(12 * 3600)
@pytest.mark.parametrize("count", [3, pytest.param(at_random(1_800), marks=pytest.mark.deep)])
def test_commits_by_direct_and_by_merge_are_equal(count: int, tmp_path: Path) -> None:
    """Some 10,000 batches of random histories, compared as above after each; every second lake by ranges of keys."""
    chosen = committed(count)
    for first in range(0, len(chosen), TOGETHER):
        together, folder = chosen[first : first + TOGETHER], tmp_path / f"lake-{first}"
        port = LocalPort("many", TaskBounds(batch=-1) if first // TOGETHER % 2 else TaskBounds())
        lakes = {way: Lake(folder / way) for way in get_args(CommitMethod)}
        for number in range(max(len(case.runs) for case in together)):
            active = [case for case in together if number < len(case.runs)]
            for way, lake in lakes.items():
                for case in active:
                    land(lake, case, number)
                specs = [replace(case.spec, commit=way) for case in active]
                done = lake.results(port, lake.job(specs, run_id=f"run-{number}"))
                assert {(result.error, result.commit) for result in done.values()} == {(None, way)}
            for case in active:
                reported = [everything(lake.layout(case.spec), port.read) for lake in lakes.values()]
                assert differences(*reported) == [], f"{readable(case)} after run {number}"
        shutil.rmtree(folder)


TEXTS: Mapping[str, Sequence[str]] = {
    "int": ("\u00a05", "1", "-2", "+3", " 4 ", "2147483648", "1.0", "0x1F", "1_000", "", "one"),
    "decimal(8,2)": ("1", "1.5", "1.50", "1.500", "1.505", "1e2", "1.55e1", "1.555e1", "999999.99", "1000000", ".5",
                     "5."),
    "double": ("1", "1e400", "-1.5e-3", "NaN", "inf", "-Infinity", "1d", "0x1p3", "1_0", " 2.5 "),
    "float": ("0.1", "16777217", "1e-50", "x"),
    "boolean": ("\ttrue", "true", "T", "yes", "0", "1", "2", "on"),
    "date": ("2024-02-29", "2023-02-29", "2024-1-2", "2024", "2024-03", "2024-01-02 00:00:00", "2024-01-02 10:00:00",
             "2024-01-02T00:00:00Z", "20240102", "10000-01-01"),
    "timestamp": ("2024-01-02 03:04:05", "2024-01-02T03:04:05.123456Z", "2024-01-02 03:04:05+02:00", "2024-01-02",
                  "2024-01-02 3:4:5", "2024-01-02 03:04", "2024-01-02 25:00:00", "2024-01-02 03:04:05 Europe/Berlin",
                  "2024-01-02 03:04:05.1234567", "03:04:05", "0000-01-01 00:00:00"),
    "binary": ("abc", "\u00fc"),
}  # fmt: skip


def test_unusual_texts_convert_equally(both: tuple[LocalPort, LocalPort], tmp_path: Path) -> None:
    """Each text alone in its row, as a value of its type, or in the quarantine."""
    columns = {kind: f"c{i}" for i, kind in enumerate(TEXTS)}
    rows: list[dict[str, Any]] = [
        {"Op": "I", "seq": f"{n:05d}", "id": str(n), columns[kind]: text}
        for n, (kind, text) in enumerate((kind, text) for kind, texts in TEXTS.items() for text in texts)
    ]
    names = ("Op", "seq", "id", *columns.values())
    options = {"csv_header": True, "types": {c: kind for kind, c in columns.items()}}
    spec = TableSpec(table="s.odd", keys=("id",), sequence_by=("seq",), options=options, mask={"c0": "hash"})
    reported = []
    for port in both:
        lake = Lake(tmp_path / port.name)
        table = pa.table({n: pa.array([r.get(n) for r in rows], pa.string()) for n in names})
        write(Path(lake.layout(spec).landing), "20240101-000000001.csv", table, FileForm(header=True))
        (result,) = lake.results(port, lake.job([spec])).values()
        assert result.status == "succeeded", result.error
        reported.append(everything(lake.layout(spec)))
    assert differences(*reported) == []


NUMBERS = {
    "a": [1.0, 1.5, 2.0**31, 1e300, None],
    "b": [1, 2**24 + 1, -5, 2**53 + 1, None],
    "c": [True, False, None, True, True],
}
NARROWER = ({"a": "int32", "b": "float", "c": "int32"}, {"a": "decimal(10,2)", "b": "int32", "c": "string"})


@pytest.mark.deep
@pytest.mark.parametrize("stored", NARROWER, ids=str)
@pytest.mark.parametrize("policy", ["widen", "rescue"])
def test_values_converted_to_a_narrower_type(
    policy: Any, stored: Mapping[str, str], both: tuple[LocalPort, LocalPort], tmp_path: Path
) -> None:
    evolution = SchemaEvolution(type_change=policy, new_column="rescue")
    spec = TableSpec(table="s.narrow", keys=("id",), sequence_by=("seq",), schema_evolution=evolution)
    first = pa.schema(
        [("id", pa.int64()), ("a", _arrow(stored["a"])), ("b", _arrow(stored["b"])), ("c", _arrow(stored["c"]))]
    )
    wide = {
        "Op": ["U"] * 5,
        "seq": range(5),
        "id": range(5),
        **NUMBERS,
        "extra": [{"x": i, "y": 0.5} for i in range(5)],
    }
    reported = []
    for port in both:
        lake = Lake(tmp_path / port.name)
        folder = Path(lake.layout(spec).landing)
        write(folder, "LOAD00000001.parquet", pa.Table.from_pylist([{"id": 0}], schema=first))
        write(folder, "20240101-000000001.parquet", pa.table({k: list(v) for k, v in wide.items()}))
        (result,) = lake.results(port, lake.job([spec])).values()
        assert result.status == "succeeded", result.error
        reported.append(everything(lake.layout(spec)))
    assert differences(*reported) == []


def _arrow(text: str) -> pa.DataType:
    return pa.decimal128(10, 2) if text.startswith("decimal") else pa.type_for_alias(text)
