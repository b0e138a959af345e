"""A table that has seen everything, and the files of the runs that the crash tests break."""

from __future__ import annotations

from airflow_gddl.contract.spec import DeleteMode, TableSpec, TieBreak
from tests.harness.strategies import file_of, sequence_value
from tests.oracle import Run, Value

TYPES = {"Op": "string", "transact_seq": "string", "id": "int64", "v": "string", "n": "int64", "BI_id": "int64"}
COLUMNS = ("Op", "transact_seq", "id", "v", "n", "BI_id")


def spec_of(name: str, delete: DeleteMode = "hard", tie_break: TieBreak = "delete_wins") -> TableSpec:
    return TableSpec(table=f"crash.{name}", keys=("id",), history=True, track_history_except=("n",), delete=delete,
                     tie_break=tie_break, before_image_prefix="BI_")  # fmt: skip


def change(
    op: str, at: int | None, key: int | None, v: str | None = None, before: int | None = None
) -> dict[str, Value]:
    sequence = None if at is None else sequence_value(at, numbered=False)
    return {"Op": op, "transact_seq": sequence, "id": key, "v": v, "n": at, "BI_id": before}


LOADED = [change("I", None, key, f"load {key}") for key in range(1, 7)]
FIRST_CHANGES = [change("U", 10, 1, "ten"), change("D", 11, 2), change("I", 12, 7, "twelve"), change("X", 13, 1)]
SECOND_CHANGES = [
    change("U", 9, 1, "late"),
    change("U", 10, 1, "ten"),
    change("U", 5, 2, "late for a dead key"),
    change("D", 20, 3),
    change("U", 21, 8, "moved", before=4),
    change("U", 22, 5, "first"),
    change("U", 23, 5, "then"),
    change("U", 23, 5, "a tie"),
    change("U", 24, None, "no key"),
    change("U", None, 6, "no sequence"),
    change("I", 25, 9, "short"),
    change("D", 26, 9),
]
SECOND_COPIES = [change("U", 22, 5, "first"), change("D", 20, 3), change("U", 27, 7, "last")]

BEFORE = Run((
    file_of("LOAD00000001.parquet", load=True, rows=LOADED, columns=COLUMNS),
    file_of("20240101-000000001.parquet", load=False, rows=FIRST_CHANGES, columns=COLUMNS),
))  # fmt: skip
BROKEN = Run((
    file_of("20240101-000000002.parquet", load=False, rows=SECOND_CHANGES, columns=COLUMNS),
    file_of("20240101-000000003.parquet", load=False, rows=SECOND_COPIES, columns=COLUMNS),
))  # fmt: skip
RUNS = (BEFORE, BROKEN)
PARTS = file_of("20240101-000000004.parquet", load=False, columns=COLUMNS,
                rows=[change("U", 30, 1), change("U", 31, 7), change("U", 32, 6)])  # fmt: skip
TRUNCATED = Run((
    file_of("20240101-000000002.parquet", load=False, rows=[*SECOND_CHANGES, change("T", 22, None)], columns=COLUMNS),
    file_of("20240101-000000003.parquet", load=False, rows=SECOND_COPIES, columns=COLUMNS),
))  # fmt: skip
TRUNCATED_LATE = (Run((*BEFORE.files, PARTS)), TRUNCATED)
"""The truncate precedes updates that are applied; under `ignore_null_updates` these lack `v`."""
