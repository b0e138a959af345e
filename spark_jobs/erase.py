"""The right to be forgotten: one key out of every table of ours, and never in again.

    look for it in the landing files ─► remember its hash ─► changes ─► replica ─► history ─► tombstones ─► errors
    ─► records of runs ─► leftovers ─► done

The hash is remembered first: from then on nothing lets the key in. Every step does nothing where it was done before.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from airflow_gddl.contract.checks import vacuum_seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult, RunWarning
from spark_jobs.actions import shape_of
from spark_jobs.decisions import has_few_rows
from spark_jobs.desk import Desk
from spark_jobs.engines.shape import Shape
from spark_jobs.erased_keys import key_text
from spark_jobs.erasure_book import Erasure, ErasureBook
from spark_jobs.landing_search import Search
from spark_jobs.ledger import Ledger
from spark_jobs.outcome import Outcome
from spark_jobs.plan.types import SqlType
from spark_jobs.runtime import iso
from spark_jobs.source_looks import LOOKS
from spark_jobs.table_run import TableRun


def erase(run: TableRun, totals: Outcome) -> JobResult:
    """Erase the key that the job's options name; `details` is the `Erasure`.

    Raises:
        FatalError: `ERASE_KEY_INVALID`, `ERASE_NOT_POSSIBLE`, `BATCH_UNFINISHED`.
        RetriableError: `TABLE_BUSY`.
    """
    started = run.runtime.clock()
    with run.claim():
        ledger, desk = run.ledger(), run.desk()
        _require_idle(run, ledger)
        desk = replace(desk, engine=desk.engine.suited(few_rows=has_few_rows(ledger.state)))
        shape = shape_of(desk, ledger.state)
        wanted = _Wanted.of(run, shape)
        done, unread = _Erasing(run, desk, shape, wanted).carry_out(started)
    totals.warn(_warnings(done, unread))
    result = totals.result(run.spec.table, run.job.run_id, started, run.runtime.clock())
    run.tell("done")
    return replace(result, status="succeeded", details=asdict(done))


def _require_idle(run: TableRun, ledger: Ledger) -> None:
    if ledger.state.keys is None or not run.spec.keys:
        raise FatalError(
            "ERASE_NOT_POSSIBLE",
            f"{run.spec.table} has no keys, or was never loaded",
            remedy="load the table first; rows of a table without keys can't be told apart",
        )
    if ledger.plan() is not None:
        raise FatalError(
            "BATCH_UNFINISHED",
            f"{run.spec.table} has a batch that is not finished",
            where=run.layout.state,
            remedy="run the table first, then erase",
        )


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """The key in the order of the table's keys: as the source has it, and as the lake has it, masks applied."""

    kinds: dict[str, SqlType]
    source: dict[str, str]
    stored: tuple[str, ...]

    @classmethod
    def of(cls, run: TableRun, shape: Shape) -> _Wanted:
        given = {name.lower(): text for name, text in run.job.options.key.items()}
        if set(given) != {k.lower() for k in shape.keys}:
            raise _invalid(run, f"the key of {run.spec.table} is {', '.join(shape.keys)}, not {', '.join(given)}")
        masks = {name.lower(): method for name, method in run.spec.mask.items()}
        kinds = {c.name: c.type for c in shape.data if c.name in shape.keys}
        source, stored = {}, []
        for key in shape.keys:
            text, hashed = given[key.lower()], masks.get(key.lower()) == "hash"
            fitted = text if hashed else key_text(text, kinds[key])
            if fitted is None:
                raise _invalid(run, f"the value for {key} is none of type {kinds[key]}, or of a type without a text")
            source[key] = fitted
            stored.append(hashlib.sha256(text.encode()).hexdigest() if hashed else fitted)
        return cls(kinds={k: kinds[k] for k in shape.keys}, source=source, stored=tuple(stored))


def _invalid(run: TableRun, what: str) -> FatalError:
    keys = " ".join(f"--key {name}=…" for name in run.spec.keys)
    return FatalError("ERASE_KEY_INVALID", what, where=run.spec.table, remedy=f"name the whole key: {keys}")


@dataclass(frozen=True)
class _Erasing:
    run: TableRun
    desk: Desk
    shape: Shape
    wanted: _Wanted

    @property
    def book(self) -> ErasureBook:
        return self.desk.erasures

    def carry_out(self, now: datetime) -> tuple[Erasure, tuple[str, ...]]:
        """The record, and landing files that can't be read."""
        files, unread = Search(desk=self.desk, key=self.wanted.source, kinds=self.wanted.kinds).run()
        key_hash = self.book.salted().hash_of(self.wanted.stored)
        options = self.run.job.options
        first = Erasure(hash=key_hash, table=self.run.spec.table, asked_at=iso(now), by=options.asked_by,
                        run_id=self.run.job.run_id)  # fmt: skip
        known = replace(self.book.read(key_hash) or first, files=files)
        self.book.write(known)
        self.run.tell("remembered")
        removed = dict(known.removed)
        for name, count in self._tables():
            removed[name] = removed.get(name, 0) + count
            self.book.write(replace(known, removed=removed))
            self.run.tell(name, rows=count)
        self._records()
        self._leftovers()
        self.run.tell("leftovers")
        until = now + timedelta(seconds=vacuum_seconds(self.run.spec))
        done = replace(known, removed=removed, done_at=known.done_at or iso(now),
                       stored_until=known.stored_until or iso(until))  # fmt: skip
        if any(removed.get(name, 0) > known.removed.get(name, 0) for name in removed):
            done = replace(done, stored_until=iso(until))
        self.book.write(done)
        return done, unread

    def _tables(self) -> Any:
        """Each table with the rows that were removed from it, as soon as they are."""
        eraser, layout, exists = self.desk.engine.eraser(), self.desk.layout, self.desk.engine.exists
        key = self.wanted.stored
        yield "changes", eraser.remove_key(layout.changes, self.shape, key)
        yield "before_images", eraser.empty_images(layout.changes, self.shape, key)
        for name in ("replica", "history", "tombstones"):
            path = getattr(layout, name)
            if exists(path):
                yield name, eraser.remove_key(path, self.shape, key)
        if exists(layout.errors):
            yield "errors", eraser.remove_records(layout.errors, self._is_in)

    def _is_in(self, record: str) -> bool:
        """Whether a record of the quarantine is of this key, now or by its before image."""
        row = {name.lower(): value for name, value in json.loads(record, parse_float=Decimal).items()}
        prefix = (self.run.spec.before_image_prefix or "").lower()
        keys = [(name.lower(), kind) for name, kind in self.wanted.kinds.items()]
        own = [self._told(row.get(name), kind) for name, kind in keys]
        old = [self._told(row.get(prefix + name) or row.get(name), kind) for name, kind in keys]
        return tuple(own) == self.wanted.stored or tuple(old) == self.wanted.stored

    @staticmethod
    def _told(value: object, kind: SqlType) -> str | None:
        return key_text(value, kind)

    def _records(self) -> None:
        """Samples of keys in the records of runs: those that show this key are left out."""
        storage = self.run.runtime.storage
        for found in list(storage.list(Layout.of(self.run.job.roots, self.run.spec).runs)):
            record = json.loads(storage.read(found.path))
            warnings = record.get("warnings", []) if isinstance(record, dict) else []
            shown = [w for w in warnings if any(self._shows(item) for item in w.get("sample", []))]
            for warning in shown:
                warning["sample"] = [item for item in warning["sample"] if not self._shows(item)]
            if shown:
                storage.write(found.path, json.dumps(record).encode())

    def _shows(self, item: object) -> bool:
        try:
            return isinstance(item, str) and self._is_in(item)
        except (ValueError, AttributeError):
            return False

    def _leftovers(self) -> None:
        """What a refresh that died has left beside the table may hold the key."""
        storage, state = self.run.runtime.storage, self.desk.layout.state
        for folder in ("refresh", "unwrapped"):
            for found in list(storage.list(f"{state}/{folder}")):
                storage.delete(found.path)
        storage.delete(f"{state}/{LOOKS}")


def _warnings(done: Erasure, unread: tuple[str, ...]) -> list[RunWarning]:
    warnings = []
    if done.files:
        message = "landing files still hold the key; they are the source's to remove"
        warnings.append(
            RunWarning(code="ERASED_IN_FILES", message=message, count=len(done.files), sample=done.files[:5])
        )
    if unread:
        message = "landing files that can't be read may hold the key"
        warnings.append(RunWarning(code="FILE_UNREADABLE", message=message, count=len(unread), sample=unread[:5]))
    return warnings
