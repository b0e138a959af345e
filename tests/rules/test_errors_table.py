"""The types with which a record of the quarantine is read back."""

from __future__ import annotations

from spark_jobs.rules.errors_table import record_ddl

_COLUMNS = {
    "id": "int", "empty": "void", "mail": "int", "name": "string", "at": "timestamp", "gone": "int", "nulled": "int",
}  # fmt: skip


def test_types_of_a_record() -> None:
    masks = {"mail": "hash", "nulled": "null"}
    text = record_ddl(list(_COLUMNS.items()), masks, finer={"at", "mail"}, unread={"name"}, withheld={"gone"})
    types = dict(part.split(" ", 1) for part in text.split(", "))
    assert {name: kind.partition(" ")[0] for name, kind in types.items()} == {
        "`id`": "int", "`empty`": "string", "`mail`": "string", "`name`": "binary", "`at`": "decimal(38,0)",
        "`gone`": "void", "`nulled`": "int",
    }  # fmt: skip
    assert (types["`name`"].endswith("string'"), types["`at`"].endswith("timestamp'")) == (True, True)
