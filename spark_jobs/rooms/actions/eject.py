"""What a plain job has to know to go on with a table (`gddl eject`); nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from airflow_gddl.contract.codes import EJECT_UNSUPPORTED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import below
from airflow_gddl.contract.names import delivered_name, is_kept, mask_method
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.erasures import ErasureRegister
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.rooms.dialects.protocol import match
from spark_jobs.rules.erasure import ErasedKeys
from spark_jobs.rules.order import ARCHIVED
from spark_jobs.rules.texts import WHOLE_NUMBERS


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Answer with `details` of these names:

    `files` that are loaded, below the landing folder; `keys` and `sequence` as the replica spells them, `sequence`
    empty before the first load; `erased`: hash to the last moment (ISO 8601) and the last sequence of changes that
    stay out; `names` and the file `salt` that these hashes were made with; `quarantined` rows and files.

    Raises:
        FatalError: `EJECT_UNSUPPORTED`: a plain job would go on wrong.
    """
    ledger, context = run.ledger(), run.context()
    replica = context.layout.replica
    columns = context.tables.data_columns(replica) if context.tables.exists(replica) else ()
    types = {column.name: str(column.type) for column in columns}
    register = ErasureRegister(run.runtime.storage, run.layout.erased, run.spec)
    erased = register.keys()
    for reason, remedy in _reasons_against(run, ledger, types, erased):
        what = f"{run.spec.table}: {reason}, which a plain job does not know"
        raise FatalError(EJECT_UNSUPPORTED, what, where=replica, remedy=remedy)
    details = {
        "files": sorted(_loaded(run, ledger)),
        "keys": _spelled(run.spec.keys, types),
        "sequence": _spelled(ledger.state.sequence_by or (), types),
        "erased": {key_hash: _bound(erased, key_hash) for key_hash in sorted(erased.hashes)},
        "names": [erased.table, *erased.former] if erased else [],
        "salt": register.salt_path if erased else "",
        "quarantined": context.quarantine.counts()[0],
    }
    return run.answer(totals, details)


def _reasons_against(
    run: TableRun, ledger: Ledger, types: Mapping[str, str], erased: ErasedKeys
) -> Iterator[tuple[str, str]]:
    """What of the table's state a plain job can't go on with, and what to do about it."""
    state, first = ledger.state, f"run `gddl run --table {run.spec.table}` first"
    if ledger.plan() is not None or run.is_loading:
        yield "a run or a load has not ended", first
    if state.held is not None or state.held_truncate is not None:
        table = run.spec.table
        released = f"`gddl release sweep --table {table}`, `gddl release truncate --table {table}`"
        yield "a reload or a truncate waits for a decision", f"release it: {released}"
    if again := sorted(_written_again(run, ledger)):
        yield f"files were written again, e.g. {again[0]}", first
    kinds = {name: types.get(name, "") for name in _spelled(state.sequence_by or (), types)}
    if not all(is_kept(name, run.spec) and mask_method(name, run.spec) is None for name in kinds):
        remedy = (
            f"keep it: correct `columns`, `exclude_columns` or `mask`, then `gddl rebuild --table {run.spec.table}`"
        )
        yield "the replica lacks a column that orders changes", remedy
    service = lowered(run.dialect.total_order)
    if texts := [name for name, kind in kinds.items() if kind == "string" and name.lower() not in service]:
        yield f"{texts[0]}, which orders changes, is text in a form of its own", "order by a column of numbers or times"
    if renamed := [name for name in types if delivered_name(name) != name]:
        yield f"files deliver {renamed[0]} under a name that is reserved", "give it another one: `rename`"
    by_hand = "keep the metadata row, or write the job by hand"
    if erased and not {types.get(name) for name in _spelled(run.spec.keys, types)} <= {*WHOLE_NUMBERS, "string"}:
        yield "keys of other types than whole numbers and text were erased", by_hand
    if erased and not all(kind in (*WHOLE_NUMBERS, "string") or kind.startswith("decimal") for kind in kinds.values()):
        yield "keys were erased, and times or fractions order changes", by_hand


def _loaded(run: TableRun, ledger: Ledger) -> Iterator[str]:
    """Files that are in the tables, or that a user has given up, below the landing folder."""
    dismissed = {*ledger.given_up("load"), *ledger.given_up("change")}
    for path, entry in ledger.all_entries().items():
        if entry.generation != ARCHIVED and (entry.state == "committed" or path in dismissed):
            yield below(run.layout.landing, path)


def _written_again(run: TableRun, ledger: Ledger) -> Iterator[str]:
    known = ledger.all_entries()
    waiting = (file.path for file in run.discover(ledger, wait="idle").waiting)
    return (below(run.layout.landing, p) for p in waiting if p in known and known[p].state == "committed")


def _spelled(names: Sequence[str], types: Mapping[str, str]) -> list[str]:
    """Columns as the replica spells them; one that it lacks, such as the order's after a full load alone, as given."""
    return [match(types, name) or name for name in names]


def _bound(erased: ErasedKeys, key_hash: str) -> tuple[str, list[str] | None]:
    bound = erased.bound(key_hash)
    if bound.sequence is None:
        return bound.until.isoformat(), None
    value = json.loads(bound.sequence, parse_float=Decimal)
    return bound.until.isoformat(), [str(part) for part in (value.values() if isinstance(value, dict) else [value])]
