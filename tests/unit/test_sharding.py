"""The order that sources of one table share."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.errors import FatalError
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.sharding import require_same_order

_OTHERS = [TableState(), TableState(sequence_by=("at",), sequence_type="bigint", max_sequence="5")]


@pytest.mark.parametrize(("columns", "kind", "remedy"), [
    (("at",), "string", "options: {types: {at: bigint}}"),
    (("at", "n"), "struct<`at`:bigint,`n`:int>", "the types of the others"),
])  # fmt: skip
def test_source_with_another_order_is_told_what_is_stored(columns: tuple[str, ...], kind: str, remedy: str) -> None:
    with pytest.raises(FatalError, match=f"ordered by {', '.join(columns)}") as caught:
        require_same_order("s.t", "north", (columns, kind), _OTHERS)
    assert caught.value.code == "SHARD_ORDER_DIFFERS"
    assert f"declare what is stored: {remedy};" in (caught.value.remedy or "")


@pytest.mark.parametrize("kind", ["bigint", "decimal(20,0)"])
def test_same_order_or_a_wider_one_is_taken(kind: str) -> None:
    require_same_order("s.t", "north", (("at",), kind), _OTHERS)
    require_same_order("s.t", "north", (("at",), "string"), _OTHERS[:1])
