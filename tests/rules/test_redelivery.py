"""What is a re-delivery, and what a tie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from airflow_gddl.contract.result import RunWarning
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.order import events, gddl_fields, least_keys, with_gddl
from spark_jobs.rules.positions import replayed_position, with_marks, with_runs
from spark_jobs.rules.redelivery import Doubts, new_changes
from tests.rules.changes import LATER, Change, in_file, states, table, table_schema

A, B = Change(op="U", v="A"), Change(op="U", v="B")
UNKNOWN, OTHER = "/l/s/t/part-a.json", "/l/s/t/part-b.json"


def positions(batch: Sequence[Change], stored: Sequence[Change] | None = None, **spec: object) -> list[tuple[str, int]]:
    """File and position of what is new."""
    schema = table_schema(**spec)
    found = new_changes(table(batch, schema), None if stored is None else table(stored, schema), schema)
    return [(row[GDDL]["source_file"], row[GDDL]["position"]) for row in found.to_pylist()]


def test_equal_rows_of_one_file_are_distinct() -> None:
    assert positions(in_file(A, B, A)) == [(A.file, 0), (A.file, 1), (A.file, 2)]
    twice = in_file(replace(A, op="I"), replace(A, op="I"))
    assert len(positions(twice, keys=())) == 2


def test_tables_without_keys_have_no_sample_of_keys() -> None:
    schema = table_schema(keys=())
    assert least_keys(table(in_file(A, B), schema), schema).num_rows == 0


def test_equal_rows_of_another_file_are_redeliveries_by_count() -> None:
    again = [replace(change, file=LATER, position=(1 << 40) + change.position) for change in in_file(A, A, A)]
    assert positions([*in_file(A, B, A), *again])[3:] == [(LATER, (1 << 40) + 2)]
    stored = [replace(change, batch="000000000000") for change in in_file(A, B, A)]
    assert positions(again, stored) == [(LATER, (1 << 40) + 2)]
    assert positions(again, [*stored, replace(A, file=LATER, position=9, batch="000000000000")]) == []


FILES = tuple(f"/l/s/t/20240101-{number:09d}.parquet" for number in range(1, 9))
"""Of known order."""
Lists = Sequence[Sequence[str]]


def arrived(lists: Lists, stored: Sequence[Change], schema: TableSchema, first: int = 0) -> list[Change]:
    """Stored changes after files, one a batch, that have these operations and values of one key at one place."""
    known = list(stored)
    for number, values in enumerate(lists, start=first):
        own = [Change(op=v if v in "ID" else "U", v=None if v == "D" else v, file=FILES[number], position=at,
                      batch=f"{number + 1:012d}") for at, v in enumerate(values)]  # fmt: skip
        new = new_changes(table(own, schema), table(known, schema) if known else None, schema)
        places = set(new.column(GDDL).combine_chunks().field("position").to_pylist())
        known += [change for change in own if change.position in places]
    return known


def last_word(changes: Sequence[Change], schema: TableSchema) -> str:
    return states(changes, schema).get(1) or "D"


_LISTS = st.lists(st.lists(st.sampled_from("IABD"), min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.mark.parametrize("twice", [True, False], ids=["sent twice", "commit times"])
@given(_LISTS)
@example(lists=[["A", "I"], ["A", "A", "I"]])
def test_the_last_file_has_the_last_word_at_a_place(twice: bool, lists: Lists) -> None:
    schema = replace(table_schema(), one_change=twice, total=twice)
    once = arrived(lists, [], schema)
    assert last_word(once, schema) == lists[-1][-1]
    assert len(arrived(lists[-1:], once, schema, len(lists))) == len(once), "what came last is a re-delivery"
    assert last_word(arrived(lists, once, schema, len(lists)), schema) == lists[-1][-1], "sent again from the start"


@given(st.lists(st.sampled_from("AB"), min_size=1, max_size=5))
def test_equal_rows_without_keys_are_as_many_as_a_file_has(values: Sequence[str]) -> None:
    schema = replace(table_schema(keys=()), one_change=True)
    once = arrived([values], [], schema)
    assert [change.v for change in once] == list(values)
    assert len(arrived([values], once, schema, 1)) == len(values)


def test_a_change_that_is_sent_again_into_its_file_is_one() -> None:
    schema = replace(table_schema(), one_change=True)
    places = [(5, "A"), (5, "B"), (5, "A"), (6, "C"), (5, "A"), (5, "B"), (5, "A"), (6, "C"), (6, "C")]
    rows = in_file(*(Change(op="U", seq=seq, v=v) for seq, v in places))
    kept = new_changes(table(rows, schema), None, schema)
    assert kept.column("v").to_pylist() == ["A", "B", "A", "C"]


def decoded(changes: Sequence[Change], schema: TableSchema) -> pa.Table:
    """As files have them, with the numbers of their runs."""
    rows = table(changes, schema)
    gddl = gddl_fields(rows)
    return with_gddl(rows, position=with_runs(gddl["position"], gddl["source_file"], gddl["sequence"]))


_ROWS = st.lists(st.tuples(st.sampled_from([5, 6]), st.sampled_from("AB"), st.booleans()), min_size=1, max_size=8)


@given(_ROWS)
@example(rows=[(5, "A", True), (5, "B", False), (5, "A", True)])
@example(rows=[(5, "A", True), (5, "A", True), (6, "A", False), (5, "A", True), (5, "A", True), (5, "A", True)])
def test_rows_that_are_left_out_decide_nothing_about_equal_ones(rows: Sequence[tuple[int, str, bool]]) -> None:
    """`where` leaves rows out, and the quarantine does: rows without keys are as many as one run of a place has."""
    schema = replace(table_schema(keys=()), one_change=True)
    every = decoded(in_file(*(Change(op="I", seq=seq, v=v) for seq, v, _ in rows)), schema)
    left = every.filter(pa.array([stays for _, _, stays in rows]))
    expected: Counter[tuple[int, str]] = Counter()
    for _, run in groupby(rows, lambda row: row[0]):
        expected |= Counter((seq, v) for seq, v, stays in run if stays)
    kept = new_changes(left, None, schema)
    found = Counter(zip(gddl_fields(kept)["sequence"].to_pylist(), kept.column("v").to_pylist(), strict=True))
    assert found == expected


PLACES = {"total": (False, True), "log": (True, True), "commit times": (False, False)}
"""`one_change` and `total`."""


@pytest.mark.parametrize("place", PLACES)
@given(_LISTS, st.booleans())
@example(lists=[["I", "B", "I"]], again=False)
@example(lists=[["I"], ["B", "I"]], again=False)
@example(lists=[["A", "B", "A"]], again=True)
def test_a_replayed_change_stands_where_its_file_has_it(place: str, lists: Lists, again: bool) -> None:
    """Changes with `B` are quarantined, and all of them replayed after the last file."""
    schema = replace(table_schema(), one_change=PLACES[place][0], total=PLACES[place][1])
    lists = [lists[0], lists[0]] if again else lists
    assume(all(set(values) != {"B"} for values in lists[:-1]))  # of such a file nothing says that it had the place
    files = [_changes(values, number, 5 + number * (place == "total")) for number, values in enumerate(lists)]
    parted = [_put_aside(table(changes, schema)) for changes in files]
    batches = [good for good, _ in parted] + [pa.concat_tables([bad for _, bad in parted])]
    every = [table(changes, schema) for changes in files]
    assert _states(_ingested(batches, schema), schema) == _states(_ingested(every, schema), schema)


@pytest.mark.parametrize(("others", "rows"), [(0, 4), (3, 4), (5, 5)])
def test_equal_rows_without_keys_that_are_replayed_are_those_of_their_file(others: int, rows: int) -> None:
    """Of four equal ones two are quarantined; another file has some more, deliveries of the same rows."""
    schema = replace(table_schema(keys=()), one_change=True)
    first = table([Change(op="I", v="x", file=FILES[0], position=at) for at in (0, 2)], schema)
    other = table(
        [Change(op="I", v="x", file=FILES[1], position=at, batch="000000000002") for at in range(others)], schema
    )
    places = [replayed_position("000000000001", at) for at in (1, 3)]
    again = table([Change(op="I", v="x", file=FILES[0], position=at, batch="000000000003") for at in places], schema)
    assert _ingested([first, other, again], schema).num_rows == rows


def _changes(values: Sequence[str], number: int, seq: int) -> list[Change]:
    return [
        Change(op=v if v in "ID" else "U", v=None if v == "D" else v, seq=seq, file=FILES[number], position=at,
               batch=f"{number + 1:012d}") for at, v in enumerate(values)
    ]  # fmt: skip


def _put_aside(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows of a file that are good, and the others as they come again."""
    gddl, bad = gddl_fields(rows), pc.fill_null(pc.equal(rows.column("v"), "B"), False).combine_chunks()
    rows = with_gddl(
        rows, position=with_marks(gddl["position"], gddl["source_file"], gddl["sequence"], np.asarray(bad))
    )
    aside = rows.filter(bad)
    places = [replayed_position(row["batch_id"], row["position"]) for row in aside.column(GDDL).to_pylist()]
    again = with_gddl(aside, position=pa.array(places, pa.int64()), batch_id=pa.repeat("000000000099", len(places)))
    return rows.filter(pc.invert(bad)), again


def _ingested(batches: Sequence[pa.Table], schema: TableSchema) -> pa.Table:
    known = batches[0].slice(0, 0)
    for own in batches:
        known = pa.concat_tables([known, new_changes(own, known, schema).select(known.column_names)])
    return known


def _states(rows: pa.Table, schema: TableSchema) -> list[str | None]:
    net = net_changes(events(rows, schema), schema, partial=schema.partial)
    return [row["v"] for row in net.to_pylist() if row[GDDL]["op"] != "D"]


def test_a_file_that_is_corrected_back_wins() -> None:
    schema = table_schema()
    known: list[Change] = []
    for number, value in enumerate("ABA", start=1):
        own = [replace(A, v=value, batch=f"{number:012d}")]
        found = new_changes(table(own, schema), table(known, schema) if known else None, schema)
        known += own if found.num_rows else []
    assert states(known, schema) == {1: "A"}
    again = [replace(A, batch="000000000009")]
    assert new_changes(table(again, schema), table(known, schema), schema).num_rows == 0


def test_full_load_rows_are_compared_inside_their_generation() -> None:
    row = Change(op="R", seq=None, v="a", batch="000000000000")
    again = replace(row, file=LATER, generation=2, batch="000000000001")
    assert positions([again], [row]) == [(LATER, 0)]
    assert positions([replace(again, generation=1)], [row]) == []
    assert positions([replace(again, generation=1)], [row], keys=()) == [(LATER, 0)]


def warned(batch: Sequence[Change], schema: TableSchema) -> tuple[RunWarning, ...]:
    rows = table(batch, schema)
    return Doubts.of(rows, new_changes(rows, None, schema), schema).warnings(schema)


def test_equal_rows_without_keys_are_counted_where_they_may_be_one() -> None:
    logged = replace(table_schema(keys=()), one_change=True)
    rows = in_file(*(Change(op="I", v=v) for v in "xyx"))
    again = [replace(change, file=LATER, position=(1 << 40) + change.position) for change in rows[:2]]
    (warning,) = warned([*rows, *again], logged)
    assert (warning.code, warning.count) == ("EQUAL_ROWS_UNDECIDED", 3)
    assert "1 that follow an equal one in their file were kept, 2 that equal rows of another file" in warning.message
    assert warned([*rows, *again], replace(logged, one_change=False)) == (), "a place is one change"
    assert warned([*rows, *again], replace(logged, number="v")) == (), "the source has numbered them"
    by_time = replace(logged, one_change=False, total=False)
    assert [one.count for one in warned([*rows, *again], by_time)] == [2], "no service sends one twice into a file"


def test_ties_between_unordered_files_are_reported() -> None:
    schema = table_schema()
    assert warned([*in_file(A, B), replace(A, file=LATER, v="C")], schema) == ()
    tied = [replace(A, file=UNKNOWN), replace(B, file=OTHER), replace(A, id=2)]
    (warning,) = warned(tied, schema)
    assert (warning.code, warning.count, warning.sample) == ("SEQUENCE_TIE", 2, ('{"id":1}',))
    assert warned(in_file(replace(A, file=UNKNOWN), replace(B, file=UNKNOWN)), schema) == ()


def test_of_equal_replayed_changes_that_of_the_first_batch_and_file_is_kept() -> None:
    """Their positions say the row in their file, and not which file came first."""

    def aside(file: str, batch: int, row: int) -> Change:
        place = replayed_position(f"{batch:012d}", row)
        return replace(A, file=file, position=place, batch="000000000009")

    first, later = aside(FILES[0], 3, 7), aside(FILES[1], 3, 0)
    assert positions([later, first]) == [(FILES[0], first.position)]
    assert positions([aside(FILES[0], 4, 0), later]) == [(FILES[1], later.position)]
