"""Whether a value matters: without it some case has another outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.pairs.model import Lines, Model
from tests.pairs.options import FACTORS, Assignment, default_of, refusal, value
from tests.pairs.playing import Game, expected, expected_rows

_PLACED = "how rows are stored"
_WAYS = "leads to equal rows by another way"

FACTS: Mapping[str, str] = {
    **dict.fromkeys(("cluster_by", "partition_by", "table_properties", "iceberg", "options"), _PLACED),
    **dict.fromkeys(("description", "column_descriptions", "rename"), _PLACED),
    **dict.fromkeys(("source_type", "region"), "facts of the change table"),
    **dict.fromkeys(("arrival", "again", "killed", "repair"), _WAYS),
    "sequence_by": "what decides between changes, where it is said otherwise in the files",
    "truncate": "a truncate that is held waits for a person, who releases it",
    "expect": "a rule that warns counts rows",
    "delete": "deleted rows stay, marked",
    "before_image_prefix": "columns of the change table, and keys that move",
    "sweep_limit": "a sweep waits for a person, who releases it",
    "misfits": "rows in quarantine",
}
"""Factors that no row tells of: what results and tables say of them is compared in their place."""


def has_history(given: Assignment) -> bool:
    """Whether it is compared: a reload begins versions anew, and an erased key has none."""
    plain = not any(value(given, name) for name in ("reloaded", "erased", "shards"))
    return bool(value(given, "history")) and plain and value(given, "repair") != "reload"


def outcome(given: Assignment) -> tuple[Lines, Lines | None, int]:
    """What is expected: rows, versions and bad rows."""
    model: Model = expected(given)
    return expected_rows(given, model), model.history() if has_history(given) else None, model.quarantined


def without(given: Assignment, name: str) -> Assignment:
    return {**given, name: default_of(name)}


def values_of(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Each value of these factors but the one that rows have without it."""
    return ((name, at) for name in names for at in range(len(FACTORS[name])) if at != default_of(name))


def cases_with(cases: Sequence[Assignment], name: str, at: int) -> Iterator[Assignment]:
    """Cases in which a factor has a value."""
    return (case for case in cases if case[name] == at)


def tells(given: Assignment, name: str) -> bool:
    """Whether what is expected would be another thing without a value, or the rest impossible."""
    return bool(refusal(without(given, name))) or outcome(given) != outcome(without(given, name))


def facts(game: Game) -> dict[str, Any]:
    """What results and tables say, but for the rows."""
    from deltalake import DeltaTable  # noqa: PLC0415 - read by the other tests through the port

    layout = game.lake.layout(game.row)
    tables = {path: DeltaTable(path) for path in (layout.replica, layout.changes)}
    return {
        "expectations": [[(each.checked, each.failed) for each in result.expectations] for result in game.results],
        "counts": [
            (each.rows_read, each.redelivered, each.quarantined, each.late_ignored, each.truncates, each.main)
            for each in game.results
        ],
        "codes": [sorted((each.code, each.count) for each in result.warnings) for result in game.results],
        "refused": game.refused,
        "tables": {path[-12:]: _table(table) for path, table in tables.items()},
        "marked": sum(bool(row["_gddl"].get("deleted")) for row in game.port.read(layout.replica)),
    }


def _table(table: Any) -> tuple[Any, ...]:
    about = table.metadata()
    return table.schema().to_json(), about.description, about.partition_columns, sorted(about.configuration.items())
