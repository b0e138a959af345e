"""Every value is found by a filter, whichever the file's bounds are: zeros, ends of types, exponents, long texts.

Each round adds a file of one row, so that each value is both bounds of its column in some file; the forms in which
engines write bounds to the log differ, and so do the forms that readers understand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from tests.conftest import LocalPort
from tests.harness.landing import write
from tests.readers import probes as asked
from tests.readers.reading import READERS

SPEC = TableSpec(table="s.extreme", keys=("id", "part"), sequence_by=("seq",))
KINDS = ("replica", "changes")
TIMES = [
    datetime.fromisoformat(text)
    for text in ("0001-01-01T00:00", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00.000001",
                 "1969-12-31T23:59:59.999999", "1582-10-10T00:00:00.000001")
]  # fmt: skip
DATES = [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10), date(1969, 12, 31), date(1, 1, 2)]


def decimals(scale: int, digits: int = 38) -> list[Decimal]:
    """Zero, the least step on both sides, and both ends."""
    return [Decimal(f"{number}e-{scale}") for number in ("0", "1", "-1", "9" * digits, "-" + "9" * digits)]


VALUES: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "part": (pa.decimal128(12, 9), decimals(9, 12)),
    "seq": (pa.decimal128(38, 8), [Decimal(n).scaleb(-8) for n in range(1, 6)]),
    **{f"scale{n}": (pa.decimal128(38, n), decimals(n)) for n in (0, 5, 6, 7, 10, 37)},
    "long": (pa.int64(), [0, 2**63 - 1, -(2**63), 2**53 + 1, -1]),
    "real": (pa.float64(), [0.0, -0.0, 5e-324, 1.7976931348623157e308, float("inf")]),
    "single": (pa.float32(), [0.0, -0.0, 1e-45, float("-inf"), float("nan")]),
    "day": (pa.date32(), DATES),
    "at": (pa.timestamp("us", "UTC"), [at.replace(tzinfo=UTC) for at in TIMES]),
    "local": (pa.timestamp("us"), TIMES),
    "text": (pa.string(), ["", "a" * 31 + "\U0010ffff" * 3, "\U0001f600" * 40, "\x00", "\uffff" * 33]),
    "quoted": (pa.string(), ["1e5", "\\", '"', "null", "\u2028 \x7f"]),
    "nested": (pa.struct([("a", pa.decimal128(20, 8))]), [{"a": d} for d in decimals(8, 20)]),
}


def rows(round_: int) -> pa.Table:
    """A row of each column's value of this round."""
    columns = {name: pa.array([values[round_]], kind) for name, (kind, values) in VALUES.items()}
    return pa.table({"Op": ["I"], "id": pa.array([round_], pa.int32()), **columns})


def wrong(layout: Layout) -> list[str]:
    """Filters that a reader answers otherwise than the rows read whole do."""
    found = []
    for kind in KINDS:
        path = getattr(layout, kind)
        probes = list(asked.probes(DeltaTable(path).to_pyarrow_table(), "nested"))
        for name, reader in READERS.items():
            counts = reader(path, probes)
            found += [f"{kind}, {name}: {p}, found {n}" for p, n in zip(probes, counts, strict=True) if n != p.rows]
    return found


@pytest.mark.deep_on_many
@pytest.mark.timeout(900)
def test_every_value_is_found(engine: LocalPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "PER_COLUMN", 10)
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    layout = Layout.of(roots, SPEC)
    for round_ in range(5):
        write(Path(layout.landing), f"20240101-00000000{round_}.parquet", rows(round_))
        (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(SPEC,)))
        assert (result.error, result.quarantined) == (None, 0)
    assert wrong(layout) == []
