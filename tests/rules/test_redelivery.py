"""What is a re-delivery, and what a tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.order import least_keys, new_changes, tie_warnings
from tests.rules.changes import LATER, Change, in_file, table, table_schema

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


def test_full_load_rows_are_compared_inside_their_generation() -> None:
    row = Change(op="R", seq=None, v="a", batch="000000000000")
    again = replace(row, file=LATER, generation=2, batch="000000000001")
    assert positions([again], [row]) == [(LATER, 0)]
    assert positions([replace(again, generation=1)], [row]) == []
    assert positions([replace(again, generation=1)], [row], keys=()) == [(LATER, 0)]


def test_ties_between_unordered_files_are_reported() -> None:
    schema = table_schema()
    known = new_changes(table([*in_file(A, B), replace(A, file=LATER, v="C")], schema), None, schema)
    assert tie_warnings(known, schema) == ()
    tied = [replace(A, file=UNKNOWN), replace(B, file=OTHER), replace(A, id=2)]
    (warning,) = tie_warnings(new_changes(table(tied, schema), None, schema), schema)
    assert (warning.code, warning.count, warning.sample) == ("SEQUENCE_TIE", 2, ('{"id":1}',))
    in_one = new_changes(table(in_file(replace(A, file=UNKNOWN), replace(B, file=UNKNOWN)), schema), None, schema)
    assert tie_warnings(in_one, schema) == ()
