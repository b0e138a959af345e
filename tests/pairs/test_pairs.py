"""Every pair of options that can be combined, played in some history and judged by a model that knows no files.

`make test` plays some of the cases, `make test-deep` all of them, in both places where a table can be worked on. The
run prints how many pairs that covers (`-s`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LocalPort
from tests.pairs.array import CoveringArray
from tests.pairs.options import FACTORS, Assignment, value, without_values
from tests.pairs.playing import expected, expected_rows, play, stored_rows, stored_versions

ARRAY = CoveringArray.made()


def _starts_spark(given: Assignment) -> bool:
    """Only Spark writes such tables, so that each run of them takes its time."""
    return "delta.enableDeletionVectors" in value(given, "table_properties")


SAMPLE = [at for at, given in enumerate(ARRAY.cases) if not _starts_spark(given)][:8]


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


@pytest.mark.parametrize("number", _CASES)
def test_tables_are_what_the_source_says(number: int, engine: LocalPort, tmp_path: Path) -> None:
    judge(ARRAY.cases[number], tmp_path, engine)


def judge(given: Assignment, folder: Path, port: LocalPort) -> None:
    game = play(given, folder, port)
    shared = [w for result in game.results for w in result.warnings if w.code == "KEYS_SHARED"]
    assert shared == [], "the source holds each key once"
    assert stored_rows(game) == expected_rows(game), _described(given, game.refused)
    if _has_history(given):
        assert stored_versions(game) == expected(game).history(), _described(given, game.refused)


def _has_history(given: Assignment) -> bool:
    """A reload begins versions anew, and an erased key has none."""
    plain = not any(value(given, name) for name in ("reloaded", "erased", "shards"))
    return bool(value(given, "history")) and plain and value(given, "repair") != "reload"


def _described(given: Assignment, refused: list[str]) -> str:
    chosen = {name: value(given, name) for name in FACTORS if given.get(name)}
    return f"{chosen}, refused: {refused}"
