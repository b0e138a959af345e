"""A table with a column of every type, more columns than Delta keeps statistics of, and files that land for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.spec import TableSpec
from tests.harness.landing import write

SPEC = TableSpec(table="s.wide", keys=("id",), sequence_by=("seq",), history=True)
_NUMBERS = tuple(f"n{i:02d}" for i in range(24))
TYPES: dict[str, pa.DataType] = {
    "name": pa.string(),
    "note": pa.string(),
    "flag": pa.bool_(),
    "ratio": pa.float64(),
    "single": pa.float32(),
    "amount": pa.decimal128(20, 2),
    "huge": pa.decimal128(38, 10),
    "born": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "raw": pa.binary(),
    "nested": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "items": pa.list_(pa.int32()),
    "nothing": pa.string(),
    **dict.fromkeys(_NUMBERS, pa.int32()),
    "odd-name": pa.string(),
    "big": pa.int64(),
    "id": pa.int32(),
}
_TIMES = tuple(
    map(
        datetime.fromisoformat,
        ("2024-05-06T07:08:09.123456", "1600-01-01T00:00:00.000001", "9999-12-31T23:59:59.999999"),
    )
)
_DATES = (date(2024, 5, 6), date(1, 1, 1), date(9999, 12, 31))


@dataclass(frozen=True)
class Row:
    """One row; its number chooses its values."""

    id: int | None
    number: int

    @property
    def values(self) -> dict[str, Any]:
        n = self.number
        if n % 7 == 3:
            return {"id": self.id}
        return {
            "id": self.id,
            "name": ("", "Ärzte", f"name {n}", "'quoted'")[n % 4],
            "note": "long " * 100 + str(n),
            "flag": n % 2 == 0,
            "ratio": (1.5, float("nan"), float("-inf"), 0.1)[n % 4],
            "single": (0.5, float("nan"), 2.0)[n % 3],
            "amount": Decimal("-12345678901234567.89") + n,
            "huge": Decimal("1234567890123456789012345678.0123456789") * (-1) ** n,
            "born": _DATES[n % 3],
            "at": _TIMES[n % 3].replace(tzinfo=UTC),
            "local": _TIMES[(n + 1) % 3],
            "raw": bytes([n % 256, 0xFF]),
            "nested": {"a": n, "b": f"b{n}"},
            "items": [n, n + 1],
            "nothing": None,
            **dict.fromkeys(_NUMBERS, n),
            "odd-name": f"dotted {n}",
            "big": (2**63 - 1) - n,
        }


def land(
    folder: Path, name: str, rows: Sequence[Row], added: dict[str, pa.DataType] | None = None, **more: Any
) -> None:
    """Write a file.

    Args:
        added: columns beyond those of `TYPES`, or other types for them; new ones hold the row's number.
        more: columns of a change file, a value for each row.
    """
    types = TYPES | (added or {})
    columns: dict[str, Any] = dict(more)
    for column, kind in types.items():
        values = [r.values.get(column) if column in TYPES else r.number for r in rows]
        columns[column] = pa.array(values, kind)
    write(folder, name, pa.table(columns))
