"""Reloads of the files that landed in a time: the tables are as if these files had always been as they are now."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_gddl.contract.actions import Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.examples import drawn, examples
from tests.harness.lake import Lake
from tests.harness.landing import to_table, write
from tests.harness.strategies import EVERYTHING, TEXTS, Case, Traits, cases, dense, file_of, sequence_value
from tests.oracle import DeliveredFile, replay
from tests.spark.playing import Stage, named, play, verify
from tests.spark.table_lines import TableLines, by_engine, by_oracle, differences

_ALONE = Traits(reloads=False, corrections=False, ties=False, copies=False, tie_breaks=("delete_wins",))
_PLAIN = dense(_ALONE)
SORTS = {
    "plain": _PLAIN,
    "everything": replace(_PLAIN, partial=True, renames=True, images=True, declared=True, bad_rows=True),
    "composite": replace(_PLAIN, composite=True, numbered=True, renames=True, steps=True),
    "truncates": replace(_PLAIN, truncates=True),
    "conditions": replace(_PLAIN, conditions=True),
    "keyless": replace(_PLAIN, keyless=True, bad_rows=True),
    "copies": replace(_PLAIN, copies=True, renames=True),
    "commit_times": replace(_PLAIN, numbered=True, ties=True, partial=True),
    "commit_times_and_copies": replace(_PLAIN, numbered=True, ties=True, copies=True),
}
SAME = {
    "everything": replace(dense(EVERYTHING), corrections=False),
    "reloads": dense(Traits(corrections=False, most_reloads=3, renames=True)),
    "truncates": dense(Traits(corrections=False, truncates=True, forced=True)),
    "keyless": dense(Traits(corrections=False, keyless=True, bad_rows=True)),
    "commit_times": dense(Traits(corrections=False, copies=False, numbered=True)),
}
SHARED = ("copies", "keyless", "commit_times", "commit_times_and_copies")
"""Sorts in which files of several times may hold the same change."""
OPENED = 1_700_000_000
SINCE, UNTIL = OPENED + 10_000, OPENED + 20_000
RELOAD = Reload(confirmed=True, landed_since="2023-11-15T01:00:00+00:00", landed_until="2023-11-15T03:46:40Z")
OPTIONS = JobOptions(action=RELOAD, full_listing=True)
ALL = replace(OPTIONS, action=replace(RELOAD, landed_since="2001-01-01", landed_until=""))


@dataclass
class _Dated(Stage):
    """Files of a case land outside the time, but for those whose names are chosen."""

    chosen: dict[str, set[str]] = field(default_factory=dict)

    def land(self, number: int) -> list[Case]:
        active = super().land(number)
        for case in active:
            for at, file in enumerate(case.runs[number].files):
                self.date(case, file, 100 * number + at)
        return active

    def date(self, case: Case, file: DeliveredFile, after: int) -> None:
        is_in = file.name in self.chosen.get(case.spec.table, ())
        moment = (SINCE if is_in else OPENED + (file.kind == "change") * 1000) + after
        os.utime(self.lake.landing(case.spec) / file.name, (moment, moment))

    def rewrite(self, case: Case, chance: Random) -> Case:
        """Write the chosen files again, and give the case that had them so from the beginning."""
        names = self.chosen[case.spec.table]
        again = {f.name: _rewritten(f, chance) for run in case.runs for f in run.files if f.name in names}
        for at, (name, file) in enumerate(again.items()):
            write(self.lake.landing(case.spec), name, to_table(file.rows, file.columns, case.types))
            self.date(case, file, 5000 + at)
        runs = tuple(replace(run, files=tuple(again.get(f.name, f) for f in run.files)) for run in case.runs)
        return replace(case, runs=runs)


COMMITTED = "dms_timestamp"


def _at_commit_times(case: Case) -> Case:
    """The case with times of commits in place of a total order: changes of a key share some."""

    def named(name: str) -> str:
        return COMMITTED if name == "transact_seq" else name

    def row(values: Mapping[str, Any]) -> dict[str, Any]:
        times = {k: v if v is None else _committed(v) for k, v in values.items() if k == "transact_seq"}
        return {named(name): times.get(name, value) for name, value in values.items()}

    runs = tuple(
        replace(run, files=tuple(
            replace(f, columns=tuple(map(named, f.columns)), rows=tuple(map(row, f.rows))) for f in run.files
        ))
        for run in case.runs
    )  # fmt: skip
    return replace(case, runs=runs, types={**case.types, COMMITTED: "timestamp[us, UTC]"})


def _committed(number: int) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=number)


def _rewritten(file: DeliveredFile, chance: Random) -> DeliveredFile:
    """The file without some rows, with other values in some, and with new rows."""
    rows = [dict(row) for row in file.rows if chance.random() < 0.8]
    for row in rows:
        if row.get("v") is not None and chance.random() < 0.5:
            row["v"] = chance.choice([text for text in TEXTS if text is not None])
    changes = [row for row in file.rows if row.get("Op") in ("I", "U") and row.get("id") is not None]
    if changes and chance.random() < 0.7:
        number = chance.randrange(100, 10**9)
        model = chance.choice(changes)
        if COMMITTED in model:
            rows.append({**model, "v": "again"})  # at a time that another change may have
        else:
            sequence = sequence_value(number, numbered=isinstance(model["transact_seq"], int))
            rows.append({**model, "Op": "I", "transact_seq": sequence})
    return file_of(file.name, load=False, rows=rows, columns=file.columns)


def _lines(tables: TableLines, *, sourced: bool) -> TableLines:
    """Changes that count, without their places in files."""
    changes = []
    for line in map(json.loads, tables["changes"]):
        gddl = line["_gddl"]
        if gddl["generation"]:
            del gddl["row"]
            if not sourced:
                del gddl["source_file"]
            changes.append(json.dumps(line, sort_keys=True))
    errors = [line.replace('"position"', '"row"') for line in tables["errors"]]
    return {**tables, "changes": sorted(changes), "errors": errors}


def _drawn(sort: str, traits: Traits, count: int) -> list[Case]:
    found = drawn(cases(traits), count)
    return [_at_commit_times(case) for case in found] if sort.startswith("commit_times") else list(found)


def _staged(port: LocalPort, folder: Path, sort: str, count: int, chance: Random) -> _Dated:
    traits = SORTS[sort]
    stage = _Dated(port, Lake(folder), named(_drawn(sort, traits, count)))
    for case in stage.cases:
        changes = sorted({f.name for run in case.runs for f in run.files if f.kind == "change"})
        stage.chosen[case.spec.table] = set(chance.sample(changes, chance.randint(0, len(changes))))
    play(stage)
    assert not stage.wrong, "\n" + stage.report()
    return stage


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SORTS)
def test_tables_are_as_if_files_had_always_been_so(sort: str, times: int, spark: LocalPort, tmp_path: Path) -> None:
    chance = Random(f"{sort} {times}")  # noqa: S311 - a repeatable choice
    stage = _staged(spark, tmp_path, sort, examples(times * 8), chance)
    before = {case.spec.table: by_engine(stage.lake.layout(case.spec)) for case in stage.cases}
    again = [stage.rewrite(case, chance) for case in stage.cases]
    results = stage.lake.results(stage.port, stage.lake.job([case.spec for case in again], OPTIONS, "range"))
    reloaded = 0
    for case in again:
        error = results[case.spec.table].error
        found = by_engine(stage.lake.layout(case.spec))
        if error is not None:
            empty = error.code == "RANGE_EMPTY" and not stage.chosen[case.spec.table]
            assert empty or (error.code == "RANGE_OVERLAPS" and sort in SHARED), error
            stage.blame(case, f"refused: {error.code}", differences(before[case.spec.table], found))
            continue
        reloaded += 1
        wanted = _lines(by_oracle(replay(case.spec, case.runs), case.spec), sourced=sort != "copies")
        loaded = _lines(found, sourced=sort != "copies")
        if sort == "commit_times_and_copies":  # which of two equal changes is kept follows the order of reading
            wanted, loaded = {**wanted, "changes": []}, {**loaded, "changes": []}
        stage.blame(case, "after the reload", differences(wanted, loaded))
    verify(stage)
    assert not stage.wrong, "\n" + stage.report()
    assert reloaded >= examples(times * 8) // 4


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SAME)
def test_files_that_are_as_they_were_change_nothing(sort: str, times: int, spark: LocalPort, tmp_path: Path) -> None:
    """Whatever there is: ties, copies, forced changes, full loads that were written again."""
    stage = Stage(spark, Lake(tmp_path), named(_drawn(sort, SAME[sort], examples(times * 6))))
    play(stage)
    assert not stage.wrong, "\n" + stage.report()
    before = {case.spec.table: by_engine(stage.lake.layout(case.spec)) for case in stage.cases}
    for options in (ALL, JobOptions(action=Rebuild()), ALL):
        job = stage.lake.job([case.spec for case in stage.cases], options, f"again-{len(stage.wrong)}")
        stage.blame_failures("in the reload", stage.lake.results(stage.port, job))
        for case in stage.cases:
            found = by_engine(stage.lake.layout(case.spec))
            stage.blame(case, "after the reload", differences(before[case.spec.table], found))
    verify(stage)
    assert not stage.wrong, "\n" + stage.report()
