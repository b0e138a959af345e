"""Figures of a file's rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from spark_jobs.rooms.dialects.protocol import LOADED
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.delivered_columns import RowProblem
from spark_jobs.rules.figures import BadRow, Figures, FileFigures, distinct, measure
from spark_jobs.rules.positions import ROW_MASK
from tests.rules.changes import IN_ORDER, Change, table, table_schema

Row = tuple[int, str, int | None]
ROW = st.tuples(st.integers(0, 5), st.sampled_from(["a", "b"]), st.none() | st.integers(0, 2))
PLAIN: list[Row] = [(n, "a", None) for n in range(6)]


def rows(values: Sequence[Row], kind: pa.DataType, op: str = "U") -> pa.Table:
    ids, parts, sequence = ([row[at] for row in values] for at in range(3))
    meta = pa.StructArray.from_arrays([pa.array(sequence, kind), pa.array([op] * len(values))], ["sequence", "op"])
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array(parts, pa.string()), "_gddl": meta})


@pytest.mark.parametrize("keys", [("id",), ("part",), ("id", "part")])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.struct([("a", pa.int64()), ("b", pa.string())])])
@given(values=st.lists(ROW, max_size=8) | st.just(PLAIN) | st.permutations(PLAIN))
def test_identities_and_keys_are_counted(keys: tuple[str, ...], kind: pa.DataType, values: list[Row]) -> None:
    def as_sequence(number: int | None) -> object:
        if number is None or pa.types.is_integer(kind):
            return number
        return str(number) if pa.types.is_string(kind) else {"a": number, "b": "x"}

    schema = table_schema(keys=keys)
    given_rows = [(i, part, as_sequence(n)) for i, part, n in values]
    at = [("id", "part").index(name) for name in keys]
    expected_keys = {tuple(row[i] for i in at) for row in values}
    identities = {(*(row[i] for i in at), row[2]) for row in values}
    assert distinct(rows(given_rows, kind), schema) == (len(identities), len(expected_keys))


def test_changes_that_a_load_has_read_are_always_compared() -> None:
    """None of them is new, however different they are."""
    read = [(1, "a", 1), (2, "b", 2)]
    whole = pa.concat_tables([rows(read, pa.int64(), LOADED), rows([(3, "c", 3)], pa.int64())])
    assert distinct(whole, table_schema(keys=("id",))) == (0, 0)
    assert distinct(whole.slice(2), table_schema(keys=("id",))) == (1, 1)


def test_first_bad_row_is_named_by_its_place_in_the_file() -> None:
    """Positions may have the number of a run above it."""
    schema = table_schema(keys=())
    rows = table([Change(op="I", position=at | 7 * (ROW_MASK + 1)) for at in (4, 2, 3)], schema)
    problems = (RowProblem(None, "CAST_FAILED", "v", ""), RowProblem(None, "SEQUENCE_NULL", None, ""))
    found = measure(DecodedGroup(kind="change", rows=rows, bad=(0, 2), problems=problems, records=()), schema)
    assert found.first_bad == BadRow(IN_ORDER, 3, "SEQUENCE_NULL", "")


def test_rows_that_do_not_add_up_are_refused() -> None:
    """One of three rows is bad, and one came before: one is left to append."""
    file = FileFigures(
        rows=3, quarantined=1, min_sequence=None, max_sequence=None, min_commit_ts=None, max_commit_ts=None
    )
    figures = Figures(files={"a": file}, identities=2, keys=2)
    assert figures.appended(1, 1, batch=4).redelivered == 1
    for written in (0, 2):
        with pytest.raises(FatalError, match=r"BATCH_UNBALANCED.*3 rows read, but .*batch 4"):
            figures.appended(1, written, batch=4)
