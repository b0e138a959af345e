"""Changes of a PostgreSQL, read by the job itself: from a logical replication slot into change files, without a CDC
service (docs/initial-load.md, decision 391).

A group of transactions is peeked at, its end is stored, its files are written if absent, and the slot advances to its
end. After a kill the same group is peeked at again, so that the same files result.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq

from airflow_gddl.contract import codec, connections
from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import STATE, join
from spark_jobs.dialects.replication_log import LoggedChange, ReplicationLog, change_file
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import read_small
from spark_jobs.table.runtime import TableRun, iso
from spark_jobs.verification import connected, url_of

_CHANGES_AT_ONCE = 100_000
"""A group ends with the transaction that reaches it."""
_WAIT_SECONDS, _FRESH_SECONDS = 600.0, 60.0
_DOCUMENT = "position.json"
_REMEDY = "drop the slot, delete this file, and load the source's tables again: gddl load --again"


@dataclass(frozen=True, kw_only=True)
class SlotPosition:
    """How far a slot was read.

    Attributes:
        upto: place in the log at which the newest group ends; empty: none was read yet.
        name: of that group's files, without their ending; names of later groups are greater.
        is_written: whether all of its files are.
        read_by, read_at: the job that has last found nothing more, and when (ISO 8601 UTC).
    """

    upto: str = ""
    name: str = ""
    is_written: bool = True
    read_by: str = ""
    read_at: str = ""


def capture(run: TableRun) -> None:
    """Write the changes that the row's slot holds, of all its tables, as files of their landing folders.

    A job does so once a minute for all its tables, a continuous job once a second.

    Raises:
        FatalError: `SOURCE_LOG_LOST`: the slot was dropped, or the database has removed what it had not read;
            `SOURCE_LOG_REFUSED`: the database has no logical replication, or not this publication; as `url_of`.
        RetriableError: `SOURCE_UNREACHABLE`; `TABLE_BUSY`: another job reads the slot for longer than ten minutes.
    """
    options, runtime = run.dialect.options, run.runtime
    slot, folder = str(options.replication_slot), _folder(run)
    if _is_read(run, read_small(runtime.storage, join(folder, _DOCUMENT), SlotPosition, _REMEDY)):
        return
    url = url_of(str(options.verify_connection), runtime.environ)
    with Claim.acquire(runtime.storage, folder, run.job.run_id, runtime.clock, _WAIT_SECONDS) as claim:
        captured = _Capture(run, slot, join(folder, _DOCUMENT), claim)
        with connected(url) as connection:
            captured.carry_out(connection)
    if captured.changes:
        run.report("changes of the source written", rows=captured.changes)


def _folder(run: TableRun) -> str:
    return join(run.job.roots.lake, STATE, "slots", run.spec.source, str(run.dialect.options.replication_slot))


def _is_read(run: TableRun, known: SlotPosition | None) -> bool:
    """Whether this job has just read all that the slot holds, for another of its tables."""
    if known is None or not known.is_written or known.read_by != run.job.run_id:
        return False
    age = (run.runtime.clock() - datetime.fromisoformat(known.read_at)).total_seconds()
    return age < (_FRESH_SECONDS if run.job.options.continuous is None else 1)


@dataclass
class _Capture:
    run: TableRun
    slot: str
    document: str
    claim: Claim
    changes: int = 0

    def carry_out(self, connection: Any) -> None:
        """Read groups up to where the log is now."""
        position = self._opened(connection)
        for setting in ("TimeZone = 'UTC'", "DateStyle = 'ISO'"):
            _execute(connection, f"SET {setting}")
        # What is written and not flushed yet is in no slot, and could be by the time of the advance, unread.
        until = str(_execute(connection, "SELECT CAST(pg_current_wal_flush_lsn() AS text)").scalar())
        while True:
            self.run.go_on()
            if not position.is_written:
                position = self._finished(connection, position)
            elif position.upto and _place(position.upto) >= _place(until):
                break
            else:
                group, end = self._peek(connection, None)
                if not group:
                    break
                position = SlotPosition(upto=end, name=self._name(position.name), is_written=False)
                self._keep(position)
        self._advance(connection, max(position.upto or until, until, key=_place))
        self._keep(replace(position, read_by=self.run.job.run_id, read_at=iso(self.run.runtime.clock())))

    def _finished(self, connection: Any, position: SlotPosition) -> SlotPosition:
        """Write the files of a group whose end is stored; nothing is left of it where the slot has advanced."""
        group, _ = self._peek(connection, position.upto)
        self._write(group, position.name)
        self._advance(connection, position.upto)
        done = replace(position, is_written=True)
        self._keep(done)
        return done

    def _opened(self, connection: Any) -> SlotPosition:
        known = read_small(self.run.runtime.storage, self.document, SlotPosition, _REMEDY)
        self._require_slot(connection, known)
        return known or SlotPosition()

    def _require_slot(self, connection: Any, known: SlotPosition | None) -> None:
        """Create the slot at its first use."""
        import sqlalchemy as sa  # noqa: PLC0415 - `url_of` has said so if it is missing

        connections.require_replication(sa, connection, self.slot)
        query = "SELECT COALESCE(wal_status, '') FROM pg_replication_slots WHERE slot_name = :slot"
        status = _execute(connection, query, slot=self.slot).scalar()
        if known is None and status is not None:
            what = f"the slot {self.slot} is there, and no job of this lake has made it: another program may read it"
            remedy = "name another slot, or drop this one if nothing reads it"
            raise FatalError("SOURCE_LOG_REFUSED", what, where=self.slot, remedy=remedy)
        if status is None and (known is None or not known.read_by):
            self._keep(SlotPosition())  # first: else a slot that was made right before a kill would be nobody's
            _execute(connection, "SELECT pg_create_logical_replication_slot(:slot, 'pgoutput')", slot=self.slot)
        elif status is None or status == "lost":
            what = "was dropped" if status is None else "is lost: the database has removed changes that were not read"
            first = "" if status is None else "drop it, "
            remedy = f"{first}delete {self.document}, then load the source's tables again: gddl load --again"
            raise FatalError("SOURCE_LOG_LOST", f"the slot {self.slot} {what}", where=self.slot, remedy=remedy)

    def _peek(self, connection: Any, upto: str | None) -> tuple[list[LoggedChange], str]:
        """The next changes, and where their last transaction ends; they stay in the slot."""
        query = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes(:slot, CAST(:upto AS pg_lsn), :most, 'proto_version',"
            " '1', 'publication_names', :slot)"
        )
        most = None if upto else _CHANGES_AT_ONCE
        rows = _execute(connection, query, slot=self.slot, upto=upto, most=most).all()
        messages = [bytes(row[0]) for row in rows]
        ends = [message for message in messages if message[:1] == b"C"]
        return list(ReplicationLog().read(messages)), _lsn(int.from_bytes(ends[-1][10:18], "big")) if ends else ""

    def _name(self, last: str) -> str:
        """A name of change files that sorts after the last one, also after a clock was set back."""
        now = self.run.runtime.clock().astimezone(UTC)
        if last:
            before = datetime.strptime(last + "000", "%Y%m%d-%H%M%S%f").replace(tzinfo=UTC)
            now = max(now, before + timedelta(milliseconds=1))
        return f"{now:%Y%m%d-%H%M%S}{now.microsecond // 1000:03d}"

    def _write(self, group: Sequence[LoggedChange], name: str) -> None:
        by_table: defaultdict[str, list[LoggedChange]] = defaultdict(list)
        for change in group:
            if not table_name_fault(change.table.title):  # others can have no row
                by_table[change.table.title].append(change)
        root = self.run.layout.landing.removesuffix(self.run.spec.name_in_source.replace(".", "/", 1))
        for title, changes in by_table.items():
            content = io.BytesIO()
            pq.write_table(change_file(changes, self.run.dialect.op_column), content, compression="zstd")
            self.claim.check()
            path = join(root.rstrip("/"), title.replace(".", "/", 1), f"{name}.parquet")
            self.run.runtime.storage.create_once(path, content.getvalue())
        self.changes += len(group)

    def _advance(self, connection: Any, upto: str) -> None:
        statement = "SELECT pg_replication_slot_advance(:slot, CAST(:upto AS pg_lsn))"
        _execute(connection, statement, slot=self.slot, upto=upto)

    def _keep(self, position: SlotPosition) -> None:
        self.claim.check()
        self.run.runtime.storage.write(self.document, codec.to_json(position).encode())


def _place(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _lsn(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


def _execute(connection: Any, statement: str, **values: Any) -> Any:
    import sqlalchemy as sa  # noqa: PLC0415 - `url_of` has said so if it is missing

    return connection.execute(sa.text(statement), values)
