"""What batches note of full loads, by which cuts of the time before a later load are proven (docs/as-of.md).

A later load writes its files over those of the one before, and tells nothing of it. So the note is made while a load is
the newest one: by a batch after which nothing of a load waits, so that it is whole and its sweep is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_gddl.contract.file_names import FIRST_OF_LOAD
from spark_jobs.batch.session import TableSession
from spark_jobs.plan.planned_batch import BatchPlan, FileEntry, LoadNote, TableState

MOST_NOTED = 100
"""Full loads of which the ledger keeps a note: each batch writes all of them."""


def notes_after(
    table: TableSession, plan: BatchPlan, files: Sequence[FileEntry], after: TableState
) -> tuple[LoadNote, ...]:  # fmt: skip
    """`TableState.loads` after a batch, the newest ones.

    It costs no request, but one where the batch is the first with a load by `gddl load`.

    Args:
        files: of the batch, as the ledger will have them; `after`: the state, but for its notes.
    """
    known, is_settled = after.note_of(after.generation), _is_settled(table, after)
    if known is None or any(file.kind == "load" for file in files):
        known = _of_files(table, files, after) if is_settled else None
    elif not is_settled:
        return after.loads
    others = (one for one in after.loads if one.generation != after.generation)
    made = () if known is None else (_at(table, plan, files, known),)
    return (*others, *made)[-MOST_NOTED:]


def _is_settled(table: TableSession, after: TableState) -> bool:
    """Whether the newest full load is whole, as far as all that has landed tells, and no other one waits."""
    discovery = table.discovery
    if table.run.notified is not None or after.swept < after.generation or after.held is not None:
        return False  # a job that is notified of files has seen no others
    waiting = any(file.kind == "load" for file in (*discovery.waiting, *discovery.held))
    unread = discovery.unread_loads or discovery.unreadable_loads
    return not (waiting or unread or any(_may_be_load(table, name) for name in discovery.unsettled))


def _may_be_load(table: TableSession, name: str) -> bool:
    names = table.context.dialect.classify(name.rpartition("/")[2])
    return names is None or names[0] == "load"


def _of_files(table: TableSession, files: Sequence[FileEntry], after: TableState) -> LoadNote | None:
    """By the files of the load; None: more of it will come, or rows of it are in quarantine, or were."""
    rows = {**table.ledger.entries(), **{file.path: file for file in files}}
    loads = [one for one in rows.values() if one.kind == "load" and one.generation == after.generation]
    if any(one.state != "committed" or one.quarantined for one in loads):
        return None
    note = LoadNote(generation=after.generation, at="", landed=max((one.modified for one in loads), default=""))
    if not any(one.path.rpartition("/")[2] == FIRST_OF_LOAD for one in loads):
        return note
    load = table.run.source_load
    if load is None or load.ended is None:
        return None
    return replace(note, until=load.place, ended=load.ended)


def _at(table: TableSession, plan: BatchPlan, files: Sequence[FileEntry], note: LoadNote) -> LoadNote:
    """The note as of this batch, with how far the log was read, where the table has all of that."""
    taken = {file.path for file in files if file.state == "committed" and file.fingerprint}
    discovery = table.discovery
    rest = discovery.waiting or discovery.held or discovery.unsettled or any(f.path not in taken for f in plan.files)
    read = "" if rest or table.run.shard else table.totals.read_until
    return replace(note, at=plan.planned_at, read=read or note.read)
