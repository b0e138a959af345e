"""Laws of the oracle itself: order, repetition and splitting of the arrivals change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.strategies import EVERYTHING, ORDER_FREE, ORDER_FREE_TIES, Case, Traits, cases
from tests.oracle import DeliveredFile, Outcome, Run, Version, replay
from tests.oracle.ingest import content
from tests.oracle.model import rank
from tests.oracle.table_schema import arrival_order

quick = settings(suppress_health_check=[HealthCheck.too_slow])


def tables(outcome: Outcome) -> tuple[Counter[Hashable], ...]:
    """Replica, change table and history as multisets."""
    return (
        Counter((content(r.columns), r.op, r.sequence, r.generation, r.deleted) for r in outcome.replica),
        Counter((c.op, c.key, c.sequence, c.generation, content(c.row)) for c in outcome.changes),
        Counter((content(v.columns), v.start, v.end, v.start_generation, v.end_generation) for v in outcome.history),
    )


def any_traits() -> st.SearchStrategy[Case]:
    keyless = Traits(keyless=True, bad_rows=True)
    composite = Traits(composite=True, numbered=True, renames=True)
    return st.one_of(cases(EVERYTHING), cases(composite), cases(keyless))


@st.composite
def rearranged(draw: st.DrawFn, traits: Traits) -> tuple[Case, tuple[Run, ...]]:
    """A case, and its files dealt anew into runs in any order."""
    case = draw(cases(traits))
    files = [file for run in case.runs for file in run.files]
    runs = [Run(()) for _ in range(draw(st.integers(1, 4)))]
    for file in draw(st.permutations(files)):
        at = draw(st.integers(0, len(runs) - 1))
        if all(file.name != other.name for other in runs[at].files):
            runs[at] = Run((*runs[at].files, file))
    return case, (*runs, *(Run((file,)) for file in files))


@quick
@given(rearranged(ORDER_FREE) | rearranged(ORDER_FREE_TIES))
def test_order_of_runs_and_files_is_irrelevant(drawn: tuple[Case, tuple[Run, ...]]) -> None:
    case, runs = drawn
    assert tables(replay(case.spec, runs)) == tables(replay(case.spec, case.runs))


@quick
@given(any_traits())
def test_redelivered_files_change_nothing(case: Case) -> None:
    again = Run(tuple(_last_versions(case)))
    once, twice = replay(case.spec, case.runs), replay(case.spec, (*case.runs, again))
    assert tables(twice) == tables(once)
    assert twice.counts[-1].rows_read == 0


def _last_versions(case: Case) -> list[DeliveredFile]:
    """Without LOAD files where there was a reload: written again after it they would join the new full load."""
    files = [file for run in case.runs for file in run.files]
    reloaded = len({file.name: file for file in files}) < len(set(map(id, files)))
    return [f for f in {f.name: f for f in files}.values() if f.kind == "change" or not reloaded]


@quick
@given(any_traits())
def test_redelivered_changes_change_nothing(case: Case) -> None:
    files = [file for run in case.runs for file in run.files if file.kind == "change"]
    again = Run(tuple(replace(file, name=f"20250101-{number:09d}.parquet") for number, file in enumerate(files)))
    once, twice = replay(case.spec, case.runs), replay(case.spec, (*case.runs, again))
    assert tables(twice) == tables(once)
    assert twice.counts[-1].appended == 0


@quick
@given(any_traits())
def test_batch_size_does_not_change_the_result(case: Case) -> None:
    split = tuple(part for number in range(len(case.runs)) for part in _split(case, number))
    assert tables(replay(case.spec, split)) == tables(replay(case.spec, case.runs))


def _split(case: Case, number: int) -> list[Run]:
    """A run for each of a run's files; a reload stays whole: seen in part, it may remove what its other files bring."""
    earlier = {file.name for run in case.runs[:number] for file in run.files if file.kind == "load"}
    run = case.runs[number]
    if any(file.name in earlier for file in run.files):
        return [run]
    return [Run((file,)) for file in arrival_order(run.files)]


@quick
@given(any_traits())
def test_every_row_read_is_accounted_for(case: Case) -> None:
    outcome = replay(case.spec, case.runs)
    for counts in outcome.counts:
        assert counts.rows_read == counts.appended + counts.redelivered + counts.quarantined
    assert sum(c.appended for c in outcome.counts) == len(outcome.changes)
    versions = [file.name for run in case.runs for file in run.files]
    settled = sum(c.quarantined for c in outcome.counts) - len(outcome.quarantined)
    assert settled == 0 or (settled > 0 and len(set(versions)) < len(versions)), "by a later version of a file"


@quick
@given(any_traits())
def test_key_has_one_row_and_one_current_version(case: Case) -> None:
    outcome = replay(case.spec, case.runs)
    keys = case.spec.keys
    if not keys:
        return
    live = Counter(tuple(r.columns[k] for k in keys) for r in outcome.replica if not r.deleted)
    assert set(live.values()) <= {1}
    if case.spec.history:
        current = [v for v in outcome.history if v.end is None]
        assert Counter(tuple(v.columns[k] for k in keys) for v in current) == live
        assert all((v.end is None) == (v.end_generation is None) for v in outcome.history)
        assert all(_begins(v) < _ends(v) for v in outcome.history if v.end is not None)
        timed = [v for v in outcome.history if v.valid_from is not None and v.valid_to is not None]
        assert all(v.valid_from <= v.valid_to for v in timed)


def _begins(version: Version) -> tuple[object, ...]:
    return rank(version.start), version.start_generation


def _ends(version: Version) -> tuple[object, ...]:
    return rank(version.end), version.end_generation
