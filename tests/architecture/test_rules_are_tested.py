"""Each module of `spark_jobs/rules` has the test module of its name, or a place that is named here with the reason."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
_DECODING = "one step of the way of a landed row, whose result shows in tables: a scenario says rows in and rows out"
_WHOLE_TABLE = "decides over a stored table, which a run makes"
ELSEWHERE = {
    "baseline_rows": ("tests/adopt/test_own_columns.py", "rows that a table had before it was adopted"),
    "decode": ("tests/scenarios/quarantine_rows", _DECODING),
    "delivered_columns": ("tests/scenarios/r11_type_misfit_rescued", _DECODING),
    "file_groups": ("tests/rules/test_batch_schema.py", "made for the columns of a batch"),
    "masks": ("tests/scenarios/r12_masks", _DECODING),
    "other_table": ("tests/one_task/test_verify_against.py", _WHOLE_TABLE),
    "quarantine": ("tests/one_task/test_quarantine_counts.py", _WHOLE_TABLE),
    "shards": ("tests/one_task/test_shards.py", _WHOLE_TABLE),
    "stale_rows": ("tests/one_task/test_quarantine_counts.py", _WHOLE_TABLE),
    "stored_columns": ("tests/one_task/test_schema_command.py", _WHOLE_TABLE),
}
"""Where a module without a test module of its name is tested, and why there."""


def test_each_module_of_the_rules_is_found_by_its_tests() -> None:
    modules = {path.stem for path in (ROOT / "spark_jobs/rules").glob("*.py")} - {"__init__"}
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests/rules").glob("test_*.py")}
    assert set(ELSEWHERE) == modules - tested
    assert [place for place, _ in ELSEWHERE.values() if not (ROOT / place).exists()] == []
