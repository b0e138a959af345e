"""The order of changes that share a sequence."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from airflow_gddl.contract.spec import TieBreak
from spark_jobs.plan.planned_batch import Truncate
from spark_jobs.rules.order import late_truncates
from tests.rules.changes import IN_ORDER, LATER, Change, in_file, states, table_schema

UPDATE, INSERT, DELETE = Change(op="U", v="u"), Change(op="I", v="i"), Change(op="D")
UNKNOWN, OTHER = "/l/s/t/part-a.json", "/l/s/t/part-b.json"
"""Files whose names tell no order."""
POLICIES: tuple[TieBreak, ...] = ("delete_wins", "last_arrival")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("file", [IN_ORDER, UNKNOWN])
def test_position_decides_inside_a_file(policy: TieBreak, file: str) -> None:
    schema = table_schema(tie_break=policy)
    a, b = replace(UPDATE, v="A", file=file), replace(UPDATE, v="B", file=file)
    assert states(in_file(a, b, a), schema) == {1: "A"}
    assert states(in_file(replace(DELETE, file=file), replace(INSERT, file=file)), schema) == {1: "i"}
    assert states(in_file(replace(INSERT, file=file), replace(DELETE, file=file)), schema) == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_later_file_name_decides_between_ordered_files(policy: TieBreak) -> None:
    schema = table_schema(tie_break=policy)
    deleted_first = [replace(DELETE, batch="000000000002"), replace(UPDATE, file=LATER)]
    assert states(deleted_first, schema) == {1: "u"}
    assert states([UPDATE, replace(DELETE, file=LATER, batch="000000000000")], schema) == {}


def test_tie_policy_decides_between_other_files() -> None:
    tied = [replace(DELETE, file=UNKNOWN), replace(UPDATE, file=OTHER, batch="000000000002")]
    assert states(tied, table_schema(tie_break="delete_wins")) == {}
    assert states(tied, table_schema(tie_break="last_arrival")) == {1: "u"}


def test_delete_wins_only_as_last_change_of_its_file() -> None:
    schema = table_schema(tie_break="delete_wins")
    ends_in_delete = in_file(replace(INSERT, file=UNKNOWN), replace(DELETE, file=UNKNOWN))
    is_continuous = in_file(replace(DELETE, file=UNKNOWN), replace(INSERT, file=UNKNOWN, v="again"))
    assert states([*ends_in_delete, replace(UPDATE, file=OTHER)], schema) == {}
    assert states([*is_continuous, replace(UPDATE, file=OTHER)], schema) == {1: "u"}


def test_rewritten_file_corrects_its_changes() -> None:
    schema = table_schema()
    corrected = replace(UPDATE, v="right", batch="000000000002")
    assert states([replace(DELETE, position=3), corrected], schema) == {1: "right"}


def test_order_of_rows_in_memory_is_irrelevant() -> None:
    schema, chosen = table_schema(), random.Random(1)  # noqa: S311 - any values do
    changes = in_file(*(Change(op=chosen.choice("IUD"), id=n % 3, v=str(n), seq=n % 4) for n in range(40)))
    changes += [replace(change, file=UNKNOWN) for change in changes[::3]]
    wanted = states(changes, schema)
    for _ in range(5):
        chosen.shuffle(changes)
        assert states(changes, schema) == wanted


@pytest.mark.parametrize(
    ("batches", "late"),
    [((), ()), ((1, 2), ()), ((2, 1), (0,)), ((1, 1), ()), ((3, 1, 2), (0,)), ((2, 3, 1), (0, 1)), ((1, 3, 2), (1,))],
)  # fmt: skip
def test_truncates_that_came_after_a_later_one_are_late(batches: tuple[int, ...], late: tuple[int, ...]) -> None:
    """In the order of changes; each by the batch that brought it."""
    truncates = tuple(
        Truncate(
            generation=1, sequence=str(at), commit_ts=None, source_file="f", position=0, batch_id=f"{batch:012d}",
            applied_at="", schema=0,
        )
        for at, batch in enumerate(batches)
    )  # fmt: skip
    assert late_truncates(truncates) == tuple(truncates[at] for at in late)
