"""Makes a failing history small: run by run, file by file, row by row, all candidates of a step side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.strategies import Case
from tests.oracle import DeliveredFile, Run
from tests.spark.playing import Stage, named, play


def reduced(port: LocalPort, case: Case, folder: Path) -> Stage:
    """The stage on which the smallest case that still fails was played."""
    best = _failing(port, [case], folder / "whole")
    assert best is not None, "the case does not fail by itself"
    for level in (without_a_run, without_a_file, without_a_row):
        step = 0
        while (found := _failing(port, list(level(best.cases[0])), folder / f"{level.__name__}_{step}")) is not None:
            best, step = found, step + 1
    return best


def _failing(port: LocalPort, cases: list[Case], folder: Path) -> Stage | None:
    """Null when none fails, else a stage with the smallest that does."""
    stage = Stage(port, Lake(folder), named([case for case in cases if case.runs]))
    if not stage.cases:
        return None
    play(stage)
    wrong = [case for case in stage.cases if case.spec.table in stage.wrong]
    if not wrong:
        return None
    smallest = min(wrong, key=_rows)
    return replace(stage, cases=[smallest], wrong={smallest.spec.table: stage.wrong[smallest.spec.table]})


def _rows(case: Case) -> int:
    return sum(len(file.rows) for run in case.runs for file in run.files)


def without_a_run(case: Case) -> Iterator[Case]:
    for at in range(len(case.runs)):
        yield replace(case, runs=case.runs[:at] + case.runs[at + 1 :])


def without_a_file(case: Case) -> Iterator[Case]:
    for at, run in enumerate(case.runs):
        for number in range(len(run.files)):
            yield _with_run(case, at, run.files[:number] + run.files[number + 1 :])


def without_a_row(case: Case) -> Iterator[Case]:
    """From every version of the file alike, so that a copy stays a copy."""
    names = {file.name: len(file.rows) for run in case.runs for file in run.files}
    for name, count in names.items():
        for row in range(count if count > 1 else 0):
            runs = (Run(tuple(_without(f, row) if f.name == name else f for f in run.files)) for run in case.runs)
            yield replace(case, runs=tuple(runs))


def _without(file: DeliveredFile, row: int) -> DeliveredFile:
    return replace(file, rows=file.rows[:row] + file.rows[row + 1 :])


def _with_run(case: Case, at: int, files: tuple[DeliveredFile, ...]) -> Case:
    runs = (*case.runs[:at], *([Run(files)] if files else []), *case.runs[at + 1 :])
    return replace(case, runs=runs)
