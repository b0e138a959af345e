"""Random histories: engine against oracle after every run, the engine's own check, and each repair at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from airflow_gddl.contract.actions import Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.examples import drawn, examples
from tests.harness.lake import Lake
from tests.harness.strategies import EVERYTHING, Case, Traits, cases, dense, file_of
from tests.oracle import Run, replay
from tests.spark.crash_tables import COLUMNS, TYPES, change, spec_of
from tests.spark.playing import Stage, named, play, verify
from tests.spark.table_lines import TableLines, by_engine, by_oracle, differences

SORTS = {
    "everything": (dense(EVERYTHING), 6),
    "plain": (dense(Traits(variants=False)), 3),
    "composite": (dense(Traits(composite=True, numbered=True, renames=True)), 4),
    "partial": (dense(Traits(partial=True, ties=False, steps=True)), 3),
    "rescued": (dense(Traits(partial=True, rescues=True)), 3),
    "clocks": (dense(Traits(clock=True, most_reloads=2)), 3),
    "keyless": (dense(Traits(keyless=True, bad_rows=True)), 3),
}


@pytest.mark.deep_on_many
@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SORTS)
def test_engine_and_oracle_agree(sort: str, times: int, spark: LocalPort, tmp_path: Path) -> None:
    """Spark plays them in the deep lane; each time it plays those of `test_batches_beside`."""
    traits, count = SORTS[sort]
    _agree(spark, tmp_path, traits, examples(times * count))


def _agree(port: LocalPort, folder: Path, traits: Traits, count: int) -> None:
    stage = Stage(port, Lake(folder), named(drawn(cases(traits), count)))
    play(stage)
    verify(stage)
    reload(stage)
    rebuild(stage, 1)
    assert not stage.wrong, "\n" + stage.report()


def reload(stage: Stage) -> None:
    """Load all tables that are right so far from their files.

    Where none was rewritten, all is as if they had come in one run.
    """
    chosen = [case for case in stage.cases if case.spec.table not in stage.wrong]
    job = stage.lake.job([case.spec for case in chosen], JobOptions(action=Reload(confirmed=True)), "reload")
    stage.blame_failures("in the reload", stage.lake.results(stage.port, job))
    for case in chosen:
        if not _rewritten(case.runs):
            found = differences(_from_files(case), by_engine(stage.lake.layout(case.spec)))
            stage.blame(case, "after the reload", found)
    verify(stage)


def rebuild(stage: Stage, seed: int) -> None:
    """Rebuild all tables that are right so far, with some of their files gone: nothing is as it was not before."""
    chosen = [case for case in stage.cases if case.spec.table not in stage.wrong]
    before = {case.spec.table: by_engine(stage.lake.layout(case.spec)) for case in chosen}
    chance = Random(seed)  # noqa: S311 - a repeatable choice
    for case in chosen:
        files = sorted(path for path in Path(stage.lake.layout(case.spec).landing).rglob("*") if path.is_file())
        # A load file that is gone may make the sweep due that waits for it.
        files = [path for path in files if not (_rewritten(case.runs) and "LOAD" in path.name)]
        for path in files[: chance.randint(0, len(files))]:
            path.unlink()
    job = stage.lake.job([case.spec for case in chosen], JobOptions(action=Rebuild()), f"rebuild-{seed}")
    stage.blame_failures("in the rebuild", stage.lake.results(stage.port, job))
    for case in chosen:
        found = differences(before[case.spec.table], by_engine(stage.lake.layout(case.spec)))
        stage.blame(case, "after the rebuild", found)
    verify(stage)


def _from_files(case: Case) -> TableLines:
    files = {file.name: file for run in case.runs for file in run.files}
    reported = by_oracle(replay(case.spec, [Run(tuple(files.values()))]), case.spec)
    return {name: reported[name] for name in ("replica", "history", "errors")}


def _rewritten(runs: Sequence[Run]) -> bool:
    """Whether a file came with other rows under its name."""
    files = [file for run in runs for file in run.files]
    return any(one.name == other.name and one != other for one in files for other in files)


def test_soft_delete_keeps_a_row_deleted_twice(spark: LocalPort, tmp_path: Path) -> None:
    """Of the deletes in one batch none but the first finds a row; the columns it had stay all the same."""
    rows = [change("I", 1, 1, "kept"), change("D", 2, 1), change("D", 3, 1)]
    run = Run((file_of("20240101-000000001.parquet", load=False, rows=rows, columns=COLUMNS),))
    stage = Stage(spark, Lake(tmp_path), [Case(spec_of("twice", delete="soft"), (run,), TYPES)])
    play(stage)
    assert not stage.wrong, "\n" + stage.report()
