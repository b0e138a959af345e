"""Whatever happens to a table, its connector and its sink, the replica is the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Rebuild, Reload
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from tests.conftest import LocalPort
from tests.debezium.sinking import Files, sunk
from tests.debezium.source import Source
from tests.harness.examples import drawn, examples

pytestmark = pytest.mark.wide

TABLE = TableSpec(table="shop.t", keys=("id",), dialect="debezium")


_MEANT_FOR_NOBODY = {"SEQUENCE_TIE", "ORDER_NOT_TOTAL", "FILES_IGNORED", "FILE_UNREADABLE"}


@dataclass(frozen=True)
class Case:
    """Attributes:
    spec: the metadata row.
    runs: files that land before each run, in any order.
    rows: the table in the end.
    events: what it and its connector have told, each change once.
    """

    spec: TableSpec
    runs: tuple[Files, ...]
    rows: Mapping[int, Mapping[str, Any]]
    events: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng: Random = draw(st.randoms(use_true_random=False))
    source = Source.lived(rng, rng.randint(5, 80))
    files = list(sunk(source.records, rng).items())
    rng.shuffle(files)
    runs: list[Files] = [{} for _ in range(rng.randint(1, 4))]
    for name, content in files:
        rng.choice(runs)[name] = content
    reported = {
        (value["op"], key, value["source"]["lsn"], value["source"]["ts_ms"])
        for key, value in source.records
        if value is not None
    }
    return Case(TABLE, tuple(runs), source.rows, len(reported))


@st.composite
def cases_of_lost_places(draw: st.DrawFn) -> Case:
    """Files come in order: a snapshot that comes after newer changes is merged, and a warning says so."""
    rng: Random = draw(st.randoms(use_true_random=False))
    source = Source.lived(rng, rng.randint(10, 80), loses=True)
    files = sorted(sunk(source.records, rng, partitions=1).items(), key=lambda file: file[0].partition(".")[0])
    runs: list[Files] = [{} for _ in range(rng.randint(1, 4))]
    for at, (name, content) in enumerate(files):
        runs[at * len(runs) // len(files)][name] = content
    reported = {
        (value["op"], key, value["source"]["lsn"], value["source"]["ts_ms"])
        for key, value in source.records
        if value is not None
    }
    row = replace(TABLE, sweep_limit=1.0, delete=rng.choice(("hard", "soft")), history=rng.random() < 0.5,
                  options={"log_began": tuple(source.began)})  # fmt: skip
    return Case(row, tuple(runs), source.rows, len(reported))


def test_replica_equals_the_source_of_a_connector_that_loses_its_place(engine: LocalPort, tmp_path: Path) -> None:
    _play(engine, tmp_path, cases_of_lost_places(), {"SNAPSHOT_MERGED"})


def test_replica_equals_the_source_table(engine: LocalPort, tmp_path: Path) -> None:
    _play(engine, tmp_path, cases(), _MEANT_FOR_NOBODY)


def _play(engine: LocalPort, tmp_path: Path, strategy: st.SearchStrategy[Case], unwanted: set[str]) -> None:
    if engine.name != "one":
        pytest.skip("the dialect hands every engine the same rows; minutes on this one")
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    found = [replace(case, spec=replace(case.spec, table=f"shop.t{number:03d}"))
             for number, case in enumerate(drawn(strategy, examples(20)))]  # fmt: skip
    tables = tuple(case.spec for case in found)
    for number in range(5):  # the last one has nothing to do
        for case in found:
            _land(Path(Layout.of(roots, case.spec).landing), case.runs[number] if number < len(case.runs) else {})
        _run(engine, JobSpec(run_id=f"r{number}", roots=roots, tables=tables), unwanted)
    wrong = _wrong(engine, roots, found)
    assert not wrong, f"{len(wrong)} of {len(found)}: {wrong[0]}"
    chance = Random(len(found))  # noqa: S311 - a repeatable choice
    for what, options in (
        ("rebuild with files gone", JobOptions(action=Rebuild())),
        ("reload", JobOptions(action=Reload(confirmed=True))),
    ):
        for case in found:
            folder, files = (
                Path(Layout.of(roots, case.spec).landing),
                {n: c for run in case.runs for n, c in run.items()},
            )
            _land(folder, files)
            for name in sorted(files)[: chance.randint(0, len(files)) if isinstance(options.action, Rebuild) else 0]:
                (folder / name).unlink()
        _run(engine, JobSpec(run_id="again", roots=roots, tables=tables, options=options), unwanted)
        wrong = _wrong(engine, roots, found)
        assert not wrong, f"after the {what} {len(wrong)} of {len(found)}: {wrong[0]}"


def _land(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def _run(engine: LocalPort, job: JobSpec, unwanted: set[str]) -> None:
    for result in engine.run(job):
        assert result.error is None or result.error.code == "NOTHING_TO_REFRESH", result.error
        assert (result.quarantined, {w.code for w in result.warnings} & unwanted) == (0, set()), result


def _wrong(engine: LocalPort, roots: Roots, found: Sequence[Case]) -> list[Any]:
    """Table, rows that are in the replica alone, rows that it lacks, and how many changes are too many."""
    wrong = []
    for case in found:
        layout = Layout.of(roots, case.spec)
        there = {_told(row) for row in engine.read(layout.replica) if not row["_gddl"].get("deleted")}
        wanted = {_told(row) for row in case.rows.values()}
        changes = len(engine.read(layout.changes)) - case.events
        if there != wanted or changes:
            wrong.append((case.spec.table, there - wanted, wanted - there, changes))
    return wrong


def _told(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("id", "name", "big", "extra"))
