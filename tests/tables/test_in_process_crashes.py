"""A run of the pipeline that breaks off after any step, and the run after it: the tables of an undisturbed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Release
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.runtime import Observer, Step
from tests.harness.lake import Lake
from tests.harness.strategies import file_of
from tests.oracle import Run, replay
from tests.spark.crash_tables import (
    BEFORE,
    COLUMNS,
    LOADED,
    RUNS,
    TRUNCATED,
    TRUNCATED_LATE,
    TYPES,
    change,
    spec_of,
)
from tests.spark.table_lines import by_engine, by_oracle, differences, everything

STEPS = (
    "plan", "read", "quarantine", "append", "decide", "tombstones", "replica", "history", "commit", "committed",
)  # fmt: skip
TABLES = ("errors", "changes", "tombstones", "replica", "history")
WRITTEN = {
    "plan": 0, "read": 0, "quarantine": 1, "append": 2, "decide": 2, "tombstones": 3, "replica": 4, "history": 5,
    "commit": 5, "committed": 5,
}  # fmt: skip
"""How many of `TABLES` are as the whole batch leaves them after each step."""
RELOAD = Run((file_of("LOAD00000001.parquet", load=True, rows=[*LOADED[1:], change("I", None, 11, "new")],
                      columns=COLUMNS),))  # fmt: skip


Whole = Callable[[TableSpec, tuple[Run, ...]], Mapping[str, object]]


class BrokenOffError(Exception):
    """The run ends here."""


def _after(step: str) -> Observer:
    def observe(reported: Step) -> None:
        if reported.step == step:
            raise BrokenOffError(step)

    return observe


def _played(folder: Path, spec: TableSpec, runs: tuple[Run, ...], step: str | None = None) -> Lake:
    """All runs; the last breaks off after `step`."""
    lake = Lake(folder)
    for run in runs[:-1]:
        lake.land(spec, run, TYPES)
        lake.raising(spec)
    lake.land(spec, runs[-1], TYPES)
    if step is None:
        lake.raising(spec)
    else:
        with pytest.raises(BrokenOffError):
            lake.raising(spec, observe=_after(step))
    return lake


def _tables(lake: Lake, spec: TableSpec) -> Mapping[str, object]:
    return everything(lake.layout(spec))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Tables of an undisturbed run; each is played once."""
    known: dict[tuple[str, int], Mapping[str, object]] = {}

    def played(spec: TableSpec, runs: tuple[Run, ...]) -> Mapping[str, object]:
        key = (spec.delete, len(runs))
        if key not in known:
            known[key] = _tables(_played(tmp_path_factory.mktemp("whole"), spec, runs), spec)
        return known[key]

    return played


@pytest.mark.parametrize("runs", [RUNS, (*RUNS, RELOAD)], ids=["changes", "reload"])
@pytest.mark.parametrize("delete", ["hard", "soft"])
@pytest.mark.parametrize("step", STEPS)
def test_next_run_resumes(
    step: str,
    delete: str,
    runs: tuple[Run, ...],
    whole: Whole,
    tmp_path: Path,
) -> None:
    spec = spec_of("t", delete="soft" if delete == "soft" else "hard")
    broken = _played(tmp_path, spec, runs, step)
    result = broken.raising(spec)
    assert (result.status, result.batches) == (("skipped", 0) if step == "committed" else ("succeeded", 1))
    assert _tables(broken, spec) == whole(spec, runs)
    wanted = by_oracle(replay(spec, runs), spec)
    assert differences(wanted, by_engine(broken.layout(spec))) == []


PLAIN = ("Op", "transact_seq", "id", "v", "n")
PRIOR = (
    Run((file_of("LOAD00000001.parquet", load=True, rows=LOADED, columns=PLAIN),)),
    Run((file_of("20240101-000000001.parquet", load=False, columns=PLAIN,
                 rows=[change("D", 10, 2), change("D", 11, 4), change("I", 21, 8), change("D", 22, 8)]),)),
    Run((file_of("20240101-000000002.parquet", load=False, columns=PLAIN, rows=[
        change("D", 30, 1), change("U", 31, 2, "after a delete"), change("U", 32, 3), change("D", 33, 3),
        change("U", 34, 9, "never seen"), change("D", 35, 10), change("U", 36, 11), change("D", 37, 11),
        change("D", 38, 5), change("U", 39, 5, "after its own delete"), change("D", 40, 4), change("U", 41, 6),
        change("I", 42, 7), change("D", 43, 7), change("D", 20, 8), change("U", 24, 8, "late"),
    ]),)),
)  # fmt: skip


@pytest.mark.parametrize("delete", ["hard", "soft"])
@pytest.mark.parametrize("step", ["decide", "tombstones", "replica", "history"])
def test_a_resumed_run_counts_the_updates_without_prior_of_a_whole_one(step: str, delete: str, tmp_path: Path) -> None:
    """What the first attempt wrote is no prior of its own changes, and what it removed was one."""
    spec = replace(spec_of("t", delete="soft" if delete == "soft" else "hard"), before_image_prefix=None)
    whole = _played(tmp_path / "whole", spec, PRIOR[:-1])
    whole.land(spec, PRIOR[-1], TYPES)
    (wanted,) = [one for one in whole.raising(spec).warnings if one.code == "UPDATE_WITHOUT_PRIOR"]
    assert wanted.count == 6, "2, 5, 8, 9, 10 and 11"
    found = _played(tmp_path / "broken", spec, PRIOR, step).raising(spec).warnings
    assert [one for one in found if one.code == "UPDATE_WITHOUT_PRIOR"] == [wanted]


@pytest.mark.parametrize("step", STEPS)
def test_reported_step_is_written(step: str, whole: Whole, tmp_path: Path) -> None:
    spec = spec_of("t")
    final, broken = whole(spec, RUNS), _tables(_played(tmp_path, spec, RUNS, step), spec)
    assert tuple(name for name in TABLES if broken[name] == final[name]) == TABLES[: WRITTEN[step]]


@pytest.mark.parametrize("step", STEPS[:-1])
def test_batch_with_changed_files(step: str, tmp_path: Path) -> None:
    """Once its changes are appended it goes on from the change table; before, the files as they are now count."""
    spec = spec_of("t")
    lake = _played(tmp_path, spec, RUNS, step)
    (name,) = (file.name for file in RUNS[-1].files if file.name.endswith("3.parquet"))
    again = Run((file_of(name, load=False, rows=[change("U", 30, 7, "rewritten")], columns=COLUMNS),))
    lake.land(spec, again, TYPES)
    lake.raising(spec)
    appended = step not in ("plan", "read", "quarantine")
    files = {file.name: file for file in RUNS[-1].files} | {file.name: file for file in again.files}
    runs = (*RUNS, again) if appended else (RUNS[0], Run(tuple(files.values())))
    found = by_engine(lake.layout(spec))
    assert differences(by_oracle(replay(spec, runs), spec), found) == []


@pytest.mark.parametrize("runs", [(BEFORE, TRUNCATED), TRUNCATED_LATE], ids=["in order", "late"])
@pytest.mark.parametrize("delete", ["hard", "soft"])
@pytest.mark.parametrize("step", [*STEPS[:4], "truncate", "fold_again", *STEPS[4:]])
def test_truncate_is_resumed(step: str, delete: str, runs: tuple[Run, ...], tmp_path: Path) -> None:
    spec = spec_of("t", delete="soft" if delete == "soft" else "hard")
    spec = replace(spec, truncate="apply", ignore_null_updates=True)
    whole, broken = _played(tmp_path / "whole", spec, runs), _played(tmp_path / "broken", spec, runs, step)
    broken.raising(spec)
    assert _tables(broken, spec) == _tables(whole, spec)
    wanted = by_oracle(replay(spec, runs), spec)
    assert differences(wanted, by_engine(broken.layout(spec))) == []


def test_files_of_an_applied_truncate_change(tmp_path: Path) -> None:
    """The batch continues from the change table, and knows the truncate by its plan."""
    spec = replace(spec_of("t"), truncate="apply")
    lake = _played(tmp_path, spec, (BEFORE, TRUNCATED), "append")
    again = Run(
        (file_of("20240101-000000003.parquet", load=False, rows=[change("U", 30, 7, "again")], columns=COLUMNS),)
    )
    lake.land(spec, again, TYPES)
    lake.raising(spec)
    wanted = by_oracle(replay(spec, (BEFORE, TRUNCATED, again)), spec)
    assert differences(wanted, by_engine(lake.layout(spec))) == []


@pytest.mark.parametrize("step", ["plan", "commit", "committed"])
def test_hold_is_resumed(step: str, tmp_path: Path) -> None:
    spec = spec_of("t")
    lake = _played(tmp_path, spec, (BEFORE, TRUNCATED), step)
    before = _tables(lake, spec)
    for _ in range(2):
        result = lake.raising(spec)
        assert [warning.code for warning in result.warnings] == ["TRUNCATE_HELD"]
    assert _tables(lake, spec) == before
    lake.raising(spec, JobOptions(action=Release(held="truncate")))
    wanted = by_oracle(replay(replace(spec, truncate="apply"), (BEFORE, TRUNCATED)), spec)
    assert differences(wanted, by_engine(lake.layout(spec))) == []


def test_steps_are_reported_in_their_order_and_named_by_the_page_of_commands(tmp_path: Path) -> None:
    spec, reported = replace(spec_of("t"), truncate="apply"), list[str]()
    lake = Lake(tmp_path)
    for run in (BEFORE, TRUNCATED):
        lake.land(spec, run, TYPES)
        reported.clear()
        lake.raising(spec, observe=lambda step: reported.append(step.step))
    made = (*STEPS[:4], "truncate", "fold_again", *STEPS[4:])
    assert reported == ["discover", *made, "done"]
    page = Path(__file__).parents[2].joinpath("docs/cli.md").read_text(encoding="utf-8")
    assert [step for step in made if f"`{step}`" not in page] == []
