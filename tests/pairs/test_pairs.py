"""Every pair of options that can be combined, played in some history and judged by a model that knows no files.

`make test` plays some of the cases, `make test-deep` all of them, in both places where a table can be worked on. The
run prints how many pairs that covers (`-s`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LocalPort
from tests.pairs.array import CoveringArray
from tests.pairs.mattering import FACTS, cases_with, facts, has_history, tells, values_of, without
from tests.pairs.options import FACTORS, Assignment, refusal, value, without_values
from tests.pairs.playing import expected, expected_rows, lived, play, stored_rows, stored_versions
from tests.pairs.source import written

ARRAY = CoveringArray.made()


def _starts_spark(given: Assignment) -> bool:
    """Only Spark writes such tables, so that each run of them takes its time."""
    return "delta.enableDeletionVectors" in value(given, "table_properties")


_WITHOUT_SPARK = [at for at, given in enumerate(ARRAY.cases) if not _starts_spark(given)]
SAMPLE = _WITHOUT_SPARK[:8] + _WITHOUT_SPARK[-5:]
"""The last cases are those that no pair asks for, see `tests/pairs/array.py`."""


def test_each_field_of_a_row_is_combined_or_has_a_reason() -> None:
    assert without_values() == []


def test_the_array_covers_every_pair_that_is_possible() -> None:
    assert ARRAY.covered(ARRAY.cases) == len(ARRAY.possible)
    assert all(ARRAY.refused.values())
    every, sample = (ARRAY.covered(cases) for cases in (ARRAY.cases, [ARRAY.cases[at] for at in SAMPLE]))
    print(
        f"\npairs covered: {every} of {len(ARRAY.possible)} possible by {len(ARRAY.cases)} cases; {sample} by {SAMPLE}"
    )
    print(f"pairs that can't be combined: {len(ARRAY.refused)}")
    for ((one, at), (other, place)), reason in ARRAY.refused.items():
        print(f"  {one}={FACTORS[one][at]!r} with {other}={FACTORS[other][place]!r}: {reason}")


_CASES = [pytest.param(at, marks=[] if at in SAMPLE else [pytest.mark.deep]) for at in range(len(ARRAY.cases))]


@pytest.mark.deep_on_many
@pytest.mark.parametrize("number", _CASES)
def test_tables_are_what_the_source_says(number: int, engine: LocalPort, tmp_path: Path) -> None:
    judge(ARRAY.cases[number], tmp_path, engine)


@pytest.mark.parametrize(("name", "at"), values_of([name for name in FACTORS if name not in FACTS]))
def test_each_value_changes_what_is_expected(name: str, at: int) -> None:
    assert any(tells(case, name) for case in cases_with(ARRAY.cases, name, at)), FACTORS[name][at]


@pytest.mark.deep
@pytest.mark.parametrize(("name", "at"), values_of([*FACTS]))
def test_each_other_value_changes_what_tables_say(name: str, at: int, engine: LocalPort, tmp_path: Path) -> None:
    """In one of three cases that play without it, too."""
    cases = [case for case in cases_with(ARRAY.cases, name, at) if not refusal(without(case, name))]
    cases = sorted(cases, key=_starts_spark)[:3]
    assert any(
        facts(play(case, tmp_path / f"{n} with", engine)) != facts(play(without(case, name), tmp_path / f"{n}", engine))
        for n, case in enumerate(cases)
    ), FACTORS[name][at]


def test_changes_of_a_key_share_a_sequence_and_files_have_them_the_other_way_round() -> None:
    """Where `step` tells their order; else the row of the file does."""
    source = lived({"sequence_by": FACTORS["sequence_by"].index(("seq", "step"))})
    places = [(change.row.get("id"), change.seq // 2) for file in source.files for change in file]
    assert len(places) > len(set(places))
    assert [written(source, file) for file in source.files] != source.files


def judge(given: Assignment, folder: Path, port: LocalPort) -> None:
    game = play(given, folder, port)
    shared = [w for result in game.results for w in result.warnings if w.code == "KEYS_SHARED"]
    reloads = value(given, "repair") == "reload" and not game.refused
    assert shared == [] or (reloads and value(given, "tied")), "the source holds each key once"
    model = expected(given, reloads=reloads)
    assert stored_rows(game) == expected_rows(given, model), _described(given, game.refused)
    if has_history(given):
        assert stored_versions(game) == model.history(), _described(given, game.refused)


def _described(given: Assignment, refused: list[str]) -> str:
    chosen = {name: value(given, name) for name in FACTORS if given.get(name)}
    return f"{chosen}, refused: {refused}"
