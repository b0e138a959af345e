"""Codes of `gddl onboard`, new tables, test data and the demo."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import Code

COLUMN_RENAMED = Code(
    "COLUMN_RENAMED",
    "advice",
    "the source renamed columns of a table that has a row",
    "add the proposed [`rename`](semantics.md#17-row-filter-names-and-computed-columns) before loading new files",
)
DEMO_FAILED = Code(
    "DEMO_FAILED",
    "fatal, retriable",
    "the demo's Airflow, or one of its runs, failed",
    "see the named log, then start again",
)
NEW_TABLES_LEFT = Code(
    "NEW_TABLES_LEFT",
    "advice",
    "a source has more tables without a metadata row than can be proposed",
    "decide on the proposals, or narrow `names`",
)
NEW_TABLES_WAIT = Code(
    "NEW_TABLES_WAIT", "problem", "no tables are proposed while a metadata file can't be read", "fix the file"
)
NEW_TABLE_KEY_MEASURED = Code(
    "NEW_TABLE_KEY_MEASURED",
    "problem",
    "the full load's files now have another key than was measured",
    "look again, or name the keys with `--key`",
)
NEW_TABLE_LANDING = Code(
    "NEW_TABLE_LANDING",
    "advice, problem",
    "a new table is not accepted: its full load is still landing",
    "wait, or name the keys with `--key`",
)
NEW_TABLE_NAMES = Code(
    "NEW_TABLE_NAMES",
    "advice",
    "a source has folders whose names no table can have",
    "rename the tables in the CDC task, or remove the folders",
)
NEW_TABLE_NO_KEY = Code(
    "NEW_TABLE_NO_KEY",
    "advice, problem",
    "a new table is not accepted: no key is known",
    "accept it with `--key` or `--append-only`",
)
NEW_TABLE_PROPOSED = Code(
    "NEW_TABLE_PROPOSED", "advice", "a table has no metadata row, and its source has `propose`", "accept or ignore it"
)
NEW_TABLE_REFUSED = Code(
    "NEW_TABLE_REFUSED",
    "advice, problem",
    "a new table is not accepted: its row would be invalid",
    "write a row with `gddl onboard SOURCE`",
)
NEW_TABLE_TARGET_EXISTS = Code(
    "NEW_TABLE_TARGET_EXISTS",
    "advice",
    "a new table is only proposed: the lake has tables of its name",
    "accept it to continue them, or ignore it",
)
ONBOARD_CSV = Code(
    "ONBOARD_CSV",
    "warning",
    "CSV has no types, and without a header no names",
    "set `options.csv_header` or `csv_columns`, and `types`",
)
ONBOARD_FILE_UNREADABLE = Code(
    "ONBOARD_FILE_UNREADABLE", "warning", "a landing file's footer can't be read", "write the file again"
)
ONBOARD_NOTHING_FOUND = Code(
    "ONBOARD_NOTHING_FOUND", "fatal", "no table has data files", "check `landing`, `--schema`, `--table`"
)
ONBOARD_NOT_CARRIED = Code("ONBOARD_NOT_CARRIED", "warning", "a line of a `--from` file was not converted")
ONBOARD_NO_KEY = Code(
    "ONBOARD_NO_KEY",
    "warning",
    "no key is declared, indexed or measured; the row is disabled",
    "name the keys, or leave `[]`; remove `enabled: false`",
)
ONBOARD_REFUSED = Code(
    "ONBOARD_REFUSED", "fatal", "a file can't be read, or rows would be invalid; nothing was written"
)
ONBOARD_ROW_ELSEWHERE = Code(
    "ONBOARD_ROW_ELSEWHERE",
    "warning",
    "another file has the table's row, for another source",
    "nothing, or name the source in that row",
)
ONBOARD_SCHEMA_MISSING = Code(
    "ONBOARD_SCHEMA_MISSING",
    "fatal",
    "the source has no such schema, or does not show it",
    "check `--schema` and the connection's rights",
)
SIMULATE_INVALID = Code("SIMULATE_INVALID", "fatal", "the input, a number or the folder for `gddl simulate` is invalid")
