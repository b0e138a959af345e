from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.plan.batching import BatchLimits, next_batch, state_after
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor, PlannedFile, TableState
from spark_jobs.plan.waiting_files import Discovery, find
from tests.harness.landed import LANDING, content, landed

NOW = datetime(2024, 2, 1, 12, 30, tzinfo=UTC)
WIDE = BatchLimits(max_files=100, max_bytes=10_000)
LOADS = ["LOAD00000001.csv", "LOAD00000002.csv", "LOAD00000003.csv"]
CHANGES = ["20240101-000000000.csv", "20240102-000000000.csv"]


def files(names: list[str], *, generation: int = 1, size: int = 10) -> tuple[PlannedFile, ...]:
    found = find((landed(name, size=size) for name in names), {}, TableState(), content).waiting
    return tuple(replace(file, generation=generation) for file in found)


def names(plan: BatchPlan | None) -> list[str]:
    assert plan is not None
    return [file.path.removeprefix(f"{LANDING}/") for file in plan.files]


def test_no_files_is_no_batch() -> None:
    assert next_batch((), limits=WIDE, state=TableState(), now=NOW) is None


def test_the_first_batch_is_initial_and_holds_the_loads() -> None:
    plan = next_batch(files([*LOADS, *CHANGES]), limits=WIDE, state=TableState(), now=NOW)
    assert plan == BatchPlan(
        number=1, mode="initial", planned_at="2024-02-01T12:30:00.000000+00:00", generation=1, files=files(LOADS)
    )


def test_changes_follow_as_incremental() -> None:
    plan = next_batch(files(CHANGES), limits=WIDE, state=TableState(batch=1, generation=1), now=NOW)
    assert names(plan) == CHANGES
    assert plan is not None
    assert (plan.number, plan.mode, plan.generation, plan.sweep) == (2, "incremental", 1, False)


def test_a_table_without_full_load_begins_with_changes() -> None:
    plan = next_batch(files(CHANGES), limits=WIDE, state=TableState(), now=NOW)
    assert plan is not None
    assert (plan.mode, plan.generation) == ("initial", 1)


def test_first_load_continues_as_initial() -> None:
    plan = next_batch(files(LOADS), limits=WIDE, state=TableState(batch=7, generation=1), now=NOW)
    assert plan is not None
    assert (plan.mode, plan.sweep) == ("initial", False)


def test_first_load_has_a_limit_of_its_own() -> None:
    limits = BatchLimits(max_files=9, max_bytes=1, first_load=10_000)

    def planned(wanted: list[str], state: TableState) -> list[str]:
        return names(next_batch(files(wanted), limits=limits, state=state, now=NOW))

    assert planned(LOADS, TableState()) == LOADS
    assert planned(LOADS, TableState(batch=1, generation=1)) == LOADS  # there is no table after unreadable files
    assert planned(LOADS, TableState(batch=1, generation=1, keys=("id",))) == LOADS[:1]
    assert planned(CHANGES, TableState()) == CHANGES[:1]


def test_limits_leave_at_least_one_file() -> None:
    state = TableState()
    assert (
        names(next_batch(files(LOADS), limits=BatchLimits(max_files=2, max_bytes=10_000), state=state, now=NOW))
        == LOADS[:2]
    )
    assert (
        names(next_batch(files(LOADS), limits=BatchLimits(max_files=9, max_bytes=20), state=state, now=NOW))
        == LOADS[:2]
    )
    assert (
        names(next_batch(files(LOADS), limits=BatchLimits(max_files=9, max_bytes=19), state=state, now=NOW))
        == LOADS[:1]
    )
    assert (
        names(next_batch(files(LOADS), limits=BatchLimits(max_files=1, max_bytes=1), state=state, now=NOW)) == LOADS[:1]
    )


def test_only_the_last_load_batch_of_a_later_generation_sweeps() -> None:
    state, two = TableState(batch=4, generation=1), BatchLimits(max_files=2, max_bytes=10_000)
    waiting = (*files(LOADS, generation=2), *files(CHANGES, generation=2))
    first = next_batch(waiting, limits=two, state=state, now=NOW)
    assert first is not None
    assert (names(first), first.mode, first.generation, first.sweep) == (LOADS[:2], "incremental", 2, False)
    second = next_batch(waiting[2:], limits=two, state=replace(state, batch=5, generation=2), now=NOW)
    assert second is not None
    assert (names(second), second.generation, second.sweep) == (LOADS[2:], 2, True)
    third = next_batch(waiting[3:], limits=two, state=replace(state, batch=6, generation=2), now=NOW)
    assert third is not None
    assert (names(third), third.sweep) == (CHANGES, False)


def test_changes_of_the_ending_generation_have_their_own_batch() -> None:
    waiting = (*files(CHANGES[:1], generation=1), *files(LOADS, generation=2), *files(CHANGES[1:], generation=2))
    plan = next_batch(waiting, limits=WIDE, state=TableState(batch=3, generation=1), now=NOW)
    assert plan is not None
    assert (names(plan), plan.generation) == (CHANGES[:1], 1)


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=30),
    most=st.integers(1, 8),
    size=st.integers(1, 100),
    loads=st.data(),
)
def test_batches_partition_what_waits(sizes: list[int], most: int, size: int, loads: st.DataObject) -> None:
    kinds = sorted(loads.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    waiting: tuple[PlannedFile, ...] = tuple(
        replace(files([CHANGES[0] if change else LOADS[0]])[0], path=f"{LANDING}/{number}", size=each)
        for number, (each, change) in enumerate(zip(sizes, kinds, strict=True))
    )
    seen: list[PlannedFile] = []
    state, left = TableState(), Discovery(waiting=waiting)
    while plan := next_batch(left.waiting, limits=BatchLimits(max_files=most, max_bytes=size), state=state, now=NOW):
        assert len({file.kind for file in plan.files}) == 1
        assert len(plan.files) <= most
        assert len(plan.files) == 1 or sum(file.size for file in plan.files) <= size
        seen.extend(plan.files)
        left = left.without(plan)
        state = state_after(plan, state, landing=LANDING, remaining=left)
    assert tuple(seen) == waiting


def planned(*names: str, number: int = 3, generation: int = 1) -> BatchPlan:
    return BatchPlan(
        number=number,
        mode="incremental",
        planned_at=NOW.isoformat(timespec="microseconds"),
        generation=generation,
        files=files(list(names), generation=generation),
    )


def test_the_cursor_is_the_newest_change_file_committed() -> None:
    state = TableState(batch=2, generation=1)
    after = state_after(planned(*CHANGES), state, landing=f"{LANDING}/", remaining=Discovery())
    assert (after.batch, after.cursor) == (3, "20240102-000000000.csv")
    late = state_after(
        planned("2023/12/31/20231231-000000000.csv", number=4), after, landing=LANDING, remaining=Discovery()
    )
    assert late.cursor == "20240102-000000000.csv"
    folder = state_after(
        planned("2024/01/03/20240103-000000000.csv", number=5), late, landing=LANDING, remaining=Discovery()
    )
    assert folder.cursor == "2024/01/03/20240103-000000000.csv"
    assert state_after(planned(*LOADS), state, landing=LANDING, remaining=Discovery()).cursor is None


def test_a_name_from_the_far_future_does_not_move_the_cursor() -> None:
    after = state_after(
        planned(CHANGES[0], "99991231-000000000.csv"),
        TableState(batch=2, generation=1),
        landing=LANDING,
        remaining=Discovery(),
    )
    assert after.cursor == CHANGES[0]


def test_the_floor_of_a_generation_is_what_came_before_it() -> None:
    first = state_after(planned(*LOADS, number=1), TableState(), landing=LANDING, remaining=Discovery())
    assert (first.generation, first.floors) == (1, (GenerationFloor(),))
    grown = replace(first, max_sequence='"0042"', max_commit_ts="2024-01-01T00:00:00.000000+00:00")
    floors = (GenerationFloor(), GenerationFloor('"0042"', "2024-01-01T00:00:00.000000+00:00"))
    second = state_after(planned(*LOADS, number=2, generation=2), grown, landing=LANDING, remaining=Discovery())
    assert (second.generation, second.floors) == (2, floors)
    third = state_after(planned(*CHANGES, number=3, generation=2), second, landing=LANDING, remaining=Discovery())
    assert third.floors == floors


def test_full_listing_is_recorded_once_all_files_are_ingested() -> None:
    state = TableState(batch=2, generation=1, listed_in_full_at="2024-01-01T00:00:00.000000+00:00")
    plan = planned(CHANGES[0])
    some = Discovery(waiting=files(CHANGES[1:]), listed_in_full_at="2024-02-01T00:00:00.000000+00:00")
    assert state_after(plan, state, landing=LANDING, remaining=some).listed_in_full_at == state.listed_in_full_at
    none = replace(some, waiting=())
    assert (
        state_after(plan, state, landing=LANDING, remaining=none).listed_in_full_at
        == "2024-02-01T00:00:00.000000+00:00"
    )
    assert state_after(plan, state, landing=LANDING, remaining=Discovery()).listed_in_full_at == state.listed_in_full_at


def test_openings_of_a_first_load_end_with_the_last_generation_that_they_name() -> None:
    """They name generations 2 and 3. A file that is rewritten later opens one by itself."""
    openings = ("2024-01-02T00:00:00+00:00", "2024-01-03T00:00:00+00:00")
    left = {}
    for generation in (1, 2, 3):
        plan = next_batch(files(LOADS, generation=generation), limits=WIDE, state=TableState(), now=NOW)
        assert plan is not None
        left[generation] = state_after(
            plan, TableState(), landing=LANDING, remaining=Discovery(openings=openings)
        ).openings
    assert left == {1: openings, 2: openings, 3: ()}
