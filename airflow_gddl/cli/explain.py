"""`gddl explain`: what happened to one key."""

from __future__ import annotations

import json as parser
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli.job import Request, carry_out, each
from airflow_gddl.cli.options import read_key, require_whole_key
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, count, counted
from airflow_gddl.contract.actions import Explain
from airflow_gddl.contract.result import JobResult

_COLUMNS = (
    *(ScreenColumn(title) for title in ("change", "state")),
    *(ScreenColumn(title, "right") for title in ("generation", "sequence")),
    *(ScreenColumn(title) for title in ("higher by", "committed", "file", "batch", "key changed")),
)
_STYLES = {"winner": "green", "late": "yellow", "swept": "yellow"}
_PARTS = {
    "force_update": "forced",
    "file_order": "file name",
    "tie_break": "tie policy",
    "position": "position in the batch",
}
"""Display names of parts of the order that differ from the job's names."""


def explain(
    ctx: typer.Context,
    *,
    table: options.OneTable,
    key: Annotated[
        list[str],
        typer.Option(
            metavar="[COLUMN=]VALUE",
            help="The key, or a part of it; all parts have to be named. @FILE reads parts from a file, @- from "
            "standard input.",
        ),
    ],
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Changes to read, the highest ones.")] = 100,
) -> None:
    """Show what happened to one key: its changes in order, the deciding one with the reason, and the replica's row.

    Takes no claim and changes nothing. Masked values are shown as they are stored.
    """
    cli = context.of(ctx)
    named = read_key(key, alone=True)
    check = partial(require_whole_key, named)
    request = Request(metadata, (table,), Explain(key=named, limit=limit), as_json=json, check=check)
    carry_out(cli, request, each(show_history))


def show_history(screen: Screen, result: JobResult) -> None:
    """Show the key's changes, the resulting row, and further details."""
    history = job.answer(result)
    if not history:
        return
    text, style = _OUTCOMES[history["outcome"]]
    screen.say(f"{result.table} {history['keys'][0]}: {text.format(**history)}", style)
    _show_changes(screen, result.table, history)
    _show_replica(screen, result.table, history)
    _show_quarantine(screen, result.table, history["quarantine"])
    if history.get("may_be_stale"):
        screen.say("The row may be stale: a change of the key that came later, or with it, is in quarantine.", "yellow")
    if history["erased_at"]:
        screen.say(f"The key was erased; asked for at {_moment(history['erased_at'])}.", "yellow")
    if history["changes_cut_before"]:
        cut = _moment(history["changes_cut_before"])
        screen.say(f"Superseded changes before {cut} were removed (changes_retention).")


_OUTCOMES = {
    "present": ("the row exists", "green"),
    "deleted": ("the row is deleted", "yellow"),
    "swept": ("swept: the full load of generation {swept} lacks the row", "yellow"),
    "no_changes": ("no change is stored", "yellow"),
}


def _show_changes(screen: Screen, table: str, history: Mapping[str, Any]) -> None:
    changes, left_out = history["changes"], history["left_out"]
    if left_out:
        screen.say(f"The highest {count(len(changes))} of {counted(len(changes) + left_out, 'change')}:", "yellow")
    if not changes:
        return
    screen.say("")
    screen.table(_COLUMNS, [_row(number, table, change) for number, change in enumerate(changes, start=1)])
    screen.say("")
    last, number = changes[-1], len(changes)
    verb = "wins" if last["state"] == "winner" else "was the last"
    why = f"its {_part(last)} is higher than that of change {number - 1}" if number > 1 else "there is no other"
    if last["forced"]:
        why = "it is applied regardless of its sequence (force_update)"
    screen.say(f"Change {number} ({last['op']}) {verb}: {why}.")
    if any(change["state"] == "late" for change in changes):
        screen.say(
            "Late changes arrived in a later batch than a higher one, and were applied in no column that it carries."
        )


def _row(number: int, table: str, change: Mapping[str, Any]) -> list[Cell | str]:
    moved = [f"{way} {change[f'moved_{way}']}" for way in ("from", "to") if change[f"moved_{way}"]]
    moved += ["by a truncate"] if change.get("truncate") else []
    return [
        f"{number} {change['op']}",
        Cell(change["state"], _STYLES.get(change["state"], "")),
        str(change["generation"]),
        _sequence(change),
        _part(change),
        _moment(change["commit_ts"]),
        _file(table, change),
        _batch(change),
        "".join(moved),
    ]


def _show_replica(screen: Screen, table: str, history: Mapping[str, Any]) -> None:
    for row in history["replica"]:
        marked = " (marked as deleted)" if row.get("deleted") else ""
        screen.say(f"The replica holds{marked}, of batch {_batch(row)}, applied {_moment(row['applied_at'])}:")
        values = parser.loads(row["record"], parse_float=str)
        longest = max(map(len, values))
        for name, value in values.items():
            # One line each, since rows are too wide for a table.
            screen.spans([Cell(f"  {name:<{longest}}  ", "dim"), Cell(_value(value))])
    if not history["replica"]:
        screen.say("The replica has no row of this key.")
    delete = history["tombstone"]
    if delete and history["outcome"] != "present":
        screen.say(f"Tombstone, applied {_moment(delete['applied_at'])}:")
        screen.spans([Cell("  sequence  ", "dim"), Cell(_sequence(delete))])
    if history["verdict"] is None:
        screen.say("Not all changes were read (--limit), so the replica was not compared.", "yellow")
    elif history["verdict"] != "equal":
        screen.say(f"The replica differs from these changes ({history['verdict']}).", "bold red")
        unfinished = "A batch is not finished: run this command again after the next run."
        screen.say(
            unfinished if history["batch_unfinished"] else f"Compare the whole table: `gddl verify --table {table}`"
        )


def _show_quarantine(screen: Screen, table: str, quarantine: Mapping[str, Any]) -> None:
    if quarantine["records"]:
        screen.say(f"{counted(len(quarantine['records']), 'record')} of this key in quarantine:", "yellow")
    for row in quarantine["records"]:
        where = f"{_file(table, row)}, batch {_batch(row)}"
        screen.spans([Cell(f"  {row['code']}", "yellow"), Cell(f"  {row['reason'] or ''} ({where})")])
    if quarantine["searched"] < quarantine["unresolved"]:
        searched, total = count(quarantine["searched"]), count(quarantine["unresolved"])
        screen.say(f"The quarantine was searched in part: {searched} of {total} unresolved rows.", "yellow")
    if unread := quarantine.get("unread_files"):
        screen.say(f"{counted(unread, 'file')} could not be read, and may hold changes of this key.", "yellow")


def _sequence(change: Mapping[str, Any]) -> str:
    """Several columns as a JSON object."""
    return "" if change["sequence"] is None else _value(change["sequence"])


def _part(change: Mapping[str, Any]) -> str:
    part = str(change["decided_by"])
    return _PARTS.get(part, part)


def _file(table: str, change: Mapping[str, Any]) -> str:
    """Its path below the table's landing folder."""
    return str(change["source_file"]).rpartition(f"/{table.replace('.', '/', 1)}/")[2]


def _batch(change: Mapping[str, Any]) -> str:
    """Its number, with the `r` of a rebuild."""
    return str(change["batch_id"]).lstrip("0")


def _moment(text: str | None) -> str:
    """Without fractions of a second that are zero, in UTC."""
    return "" if text is None else text.replace("+00:00", "Z").replace(".000000", "")


def _value(value: object) -> str:
    return value if isinstance(value, str) else parser.dumps(value, ensure_ascii=False)
