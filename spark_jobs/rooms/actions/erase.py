"""Erasure (right to be forgotten): removes one key from all tables and excludes it from later loads.

    search the landing files ─► store its hash ─► changes ─► replica ─► history ─► tombstones ─► errors
    ─► records of runs ─► leftovers ─► done

The hash is stored first: from then on no load accepts the key. Every step is idempotent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.codes import ERASED_IN_FILES, ERASED_KEY_MOVED, ERASED_NOTHING, FILE_UNREADABLE
from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.contract.layout import STATE, Layout, join, landing_root, result_name
from airflow_gddl.contract.names import before_image_name, landed_name
from airflow_gddl.contract.result import JobResult, MainCounts, RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.batch import notices
from spark_jobs.batch.erasable import require_erasable
from spark_jobs.batch.pending import let_go_of_unwritten
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.batch.turns import of_key
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.erasures import Erasure
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import PlannedFile, has_few_rows
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.probe import probe_all, reading
from spark_jobs.rooms.dialects.protocol import Probed, Unreadable, match
from spark_jobs.rooms.sources import reader_of
from spark_jobs.rules.erasure import WantedKey, key_text
from spark_jobs.rules.file_rows import read_file
from spark_jobs.rules.masks import masked_text
from spark_jobs.tables.engine import Engine
from spark_jobs.tables.file_rules import ChangesErased
from spark_jobs.tables.vacuum import vacuum_hours
from spark_jobs.verification import DIFFERENCES, WINDOW_DIFFERENCES


@dataclass(frozen=True, kw_only=True)
class Search:
    """The key to find.

    Attributes:
        key: key column to its text as the source has it, before any mask.
        wanted: has their types, and those that are masked, named by the text that their mask hashes.
        exports: files of snapshots, which are searched in place of change files that are made of them; None: the table
            has none.
    """

    context: Engine
    key: Mapping[str, str]
    wanted: WantedKey
    exports: tuple[PlannedFile, ...] | None = None

    def run(self) -> tuple[tuple[PlannedFile, ...], tuple[str, ...]]:
        """The files that hold the key, and paths of those that can't be read."""
        holding: list[PlannedFile] = []
        unread: list[str] = []
        for file in self._files():
            holds = self._holds(file)
            if holds is None:
                unread.append(file.path)
            elif holds:
                holding.append(file)
        return tuple(holding), tuple(unread)

    def _files(self) -> Iterator[PlannedFile]:
        if self.exports is not None:
            yield from self.exports
            return
        root = self.context.layout.landing.rstrip("/")
        for file in self.context.storage.list(root, within=landing_root(root)):
            names = self.context.dialect.classify(file.name)
            if names is not None and not file.refused:
                yield PlannedFile(
                    path=file.path, kind=names[0], format=names[1], size=file.size, etag=file.etag,
                    modified=file.modified_at, fingerprint="", generation=1,
                )  # fmt: skip

    def _holds(self, file: PlannedFile) -> bool | None:
        """None for a file that can't be read."""
        with suppress(QuarantinableError), reading(file):
            return self._holds_key(file)
        return None

    def _holds_key(self, file: PlannedFile) -> bool | None:
        probed, _ = probe_all(self.context.storage, [file], self.context.dialect)
        rows = read_file(self.context.storage, probed[0]) if probed else None
        if rows is None or isinstance(rows, Unreadable):
            return None
        prefix = self.context.spec.before_image_prefix
        for start in ("", prefix) if prefix else ("",):
            columns = self._columns(probed[0], rows.columns, start)
            if columns is not None and any(self._is_key(row) for row in zip(*columns, strict=True)):
                return True
        return False

    def _columns(self, probed: Probed, values: Any, prefix: str) -> list[list[Any]] | None:
        """Values of the key's columns; a missing before image means that this part did not change."""
        names = [landed_name(name) for name, _ in probed.columns]
        columns = []
        for key in self.key:
            after, before = match(names, key), match(names, before_image_name(prefix, key))
            if after is None or (prefix and all(match(names, before_image_name(prefix, k)) is None for k in self.key)):
                return None
            mine = values[names.index(after)].to_pylist()
            if prefix and before is not None:
                old = values[names.index(before)].to_pylist()
                mine = [a if b is None else b for a, b in zip(mine, old, strict=True)]
            columns.append(mine)
        return columns

    def _is_key(self, row: tuple[Any, ...]) -> bool:
        wanted = self.key.items()
        return all(self._text(v, name) == text for v, (name, text) in zip(row, wanted, strict=True))

    def _text(self, value: Any, name: str) -> str | None:
        if name in self.wanted.hashed and value is not None and not isinstance(value, bytes):
            return masked_text(value)
        return key_text(value, self.wanted.kinds[name])


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Erase the key that the job's options name; `details` is the `Erasure`.

    Raises:
        FatalError: `KEY_INVALID`, `TABLE_WITHOUT_KEYS`, `KEYS_CHANGED`, `BATCH_UNFINISHED`,
            `ERASED_BY_OTHER_KEYS`.
        RetriableError: `TABLE_BUSY`.
    """
    asked = run.job.options.asked(Erase)
    run = of_key(run, asked.key)
    with run.claim() as claim:
        ledger, context = run.ledger(), run.context()
        require_erasable(run, context, ledger)
        let_go_of_unwritten(context, ledger)
        context = context.suited(few_rows=has_few_rows(ledger.state))
        table_schema = context.stored_schema(ledger.state)
        wanted = WantedKey.of(run.spec, table_schema, asked.key)
        done = _Erasing(
            run=run, context=context, table_schema=table_schema, wanted=wanted, claim=claim, ledger=ledger,
            totals=totals,
        ).carry_out()  # fmt: skip
    run.report("done")
    return run.answer(totals, asdict(done))


@dataclass(kw_only=True)
class _Erasing:
    run: TableRun
    context: Engine
    table_schema: TableSchema
    wanted: WantedKey
    claim: Claim
    ledger: Ledger
    totals: RunTotals
    others: list[tuple[str, ...]] = field(default_factory=list)
    """Keys from which rows were moved to this one, as text."""
    noted: Erasure = field(init=False)
    """The record as it was last written."""

    def carry_out(self) -> Erasure:
        """Search, record and remove the key, with warnings; return its record.

        A repeated erasure that removes nothing keeps the times of the record.
        """
        run, hours, asked_at = self.run, vacuum_hours(self.run.spec), iso(self.run.runtime.clock())
        register = self.context.erasures
        delivered = {
            name: text for name, text in self.wanted.source.items() if not (run.shard and name == SHARD_COLUMN)
        }
        files, unread = Search(
            context=self.context,
            key=delivered,
            wanted=self.wanted,
            exports=reader_of(run.spec).exports(run),
        ).run()
        key_hash = register.salted().hash_of(self.wanted.stored)
        first = Erasure(hash=key_hash, table=run.spec.table, asked_at=asked_at, until=asked_at,
                        by=run.job.options.asked(Erase).asked_by, run_id=run.job.run_id)  # fmt: skip
        known = self._bounded(register.read(key_hash) or first, files, asked_at)
        self.claim.check()
        run.ledger().forget_delta_logs()
        register.write(known)
        run.report("remembered")
        before = self.noted = known
        for name, count in self._tables():
            if name == "replica":
                self._count(count)
            run.report(name, rows=count)
            self.claim.check()
        known = self.noted
        while self._clean_records():  # until none has the key: loads archive records meanwhile, without a claim
            pass
        self._leftovers()
        run.report("leftovers")
        now = run.runtime.clock()
        is_unchanged = known.removed == before.removed and not before.counted
        until = known.stored_until if is_unchanged else None
        done = replace(known, done_at=known.done_at or iso(now), counted=(), rows=None, batch=None,
                       stored_until=until or iso(now + timedelta(hours=hours)))  # fmt: skip
        register.write(done)
        self.totals.warn(_warnings(run.spec, done, unread, self.others))
        return done

    def _bounded(self, known: Erasure, files: Sequence[PlannedFile], asked_at: str) -> Erasure:
        """The record with bounds that distinguish erased rows from later rows with a reused key."""
        prints, rows = set(known.fingerprints), self.ledger.all_entries()
        for file in files:
            row = rows.get(file.path)
            if row is not None and row.etag == file.etag and row.fingerprint:  # which a copy of the file keeps
                prints.add(row.fingerprint)
            with suppress(FileNotFoundError):  # removed since it was listed, or written again: its rows may be later
                prints.add(self.context.storage.fingerprint_as_listed(file))
        return replace(
            known, files=tuple(file.path for file in files), until=asked_at, fingerprints=tuple(sorted(prints)),
            sequence=self.ledger.state.max_sequence,
        )  # fmt: skip

    def _note(self, name: str, count: int) -> None:
        """Write to the record how many rows of a table are about to go, unless a killed attempt has."""
        known = self.noted
        if name in known.counted:
            return
        rows, batch = known.rows, known.batch
        if name == "replica" and count:
            rows, batch = max(0, self.ledger.state.rows - count), self.ledger.state.batch
        removed = {**known.removed, name: known.removed.get(name, 0) + count}
        self.noted = replace(known, removed=removed, counted=(*known.counted, name), rows=rows, batch=batch)
        self.context.erasures.write(self.noted)

    def _count(self, removed: int) -> None:
        """Store the replica's row count in the ledger."""
        known, rows = self.noted, self.ledger.state.rows
        if known.rows is not None and known.batch == self.ledger.state.batch:
            rows = known.rows
            self.ledger.note_rows(rows)
        self.totals.main = MainCounts(deleted=removed, rows=rows + sum(other.rows for other in self.run.others))

    def _tables(self) -> Iterator[tuple[str, int]]:
        """Each table with its number of removed rows, as soon as they are removed."""
        layout, eraser, exists = self.context.layout, self.context.eraser, self.context.tables.exists
        key = self.wanted.stored

        def note(found: ChangesErased) -> None:
            self._note("changes", found.removed)
            self._note("before_images", found.images)

        changes = eraser.remove_changes(layout.changes, self.table_schema, key, note)
        self.others.extend(changes.others)
        yield "changes", changes.removed
        yield "before_images", changes.images
        for name in ("replica", "history", "tombstones"):
            path = getattr(layout, name)
            if exists(path):
                yield name, eraser.remove_key(path, self.table_schema, key, partial(self._note, name))
        if exists(layout.errors):
            yield "errors", eraser.remove_records(layout.errors, self.wanted.is_in, partial(self._note, "errors"))

    def _clean_records(self) -> bool:
        """Remove samples with this key from run records and results; whether one was changed, or was removed
        meanwhile."""
        storage, roots = self.run.runtime.storage, self.run.job.roots
        answer = f"/{result_name(self.run.spec.table)}"
        paths = [f.path for f in storage.list(Layout.of(roots, self.run.spec).runs)]
        paths += [f.path for f in storage.list(join(roots.lake, STATE, "results")) if f.path.endswith(answer)]
        changed = False
        for path in paths:
            try:
                text = storage.read(path).decode(errors="replace")
            except FileNotFoundError:  # archived since it was listed
                changed = True
                continue
            # An archive has one record per line; a single record has no line break.
            cleaned = "\n".join(map(self._without_shown, text.split("\n")))
            if cleaned != text:
                storage.write(path, cleaned.encode())
                changed = True
        return changed

    def _without_shown(self, line: str) -> str:
        """A record without those items of its lists that show the key."""
        try:
            record = json.loads(line)
        except ValueError:
            return line
        kept = self._left_of(record)
        return line if kept == record else json.dumps(kept)

    def _left_of(self, value: Any) -> Any:
        """Samples of warnings are texts; keys that differ and rows of the quarantine are texts within objects."""
        if isinstance(value, list):
            return [self._left_of(item) for item in value if not self._shows(item)]
        return {n: self._left_of(v) for n, v in value.items()} if isinstance(value, dict) else value

    def _shows(self, item: Any) -> bool:
        if isinstance(item, dict):
            return any(isinstance(value, str) and self._shows(value) for value in item.values())
        try:
            return isinstance(item, str) and self.wanted.is_in(item)
        except (ValueError, AttributeError):
            return False

    def _leftovers(self) -> None:
        """Remove leftovers of an interrupted refresh, and change files that wait, which may hold the key."""
        reader_of(self.run.spec).withdraw(self.run)
        storage, state = self.run.runtime.storage, Layout.of(self.run.job.roots, self.run.spec).state
        for folder in ("refresh", "unwrapped"):
            for file in list(storage.list(f"{state}/{folder}")):
                storage.delete(file.path)
        for name in (DIFFERENCES, WINDOW_DIFFERENCES):
            storage.delete(f"{state}/{name}")


def _warnings(
    spec: TableSpec, done: Erasure, unread: tuple[str, ...], others: Sequence[tuple[str, ...]]
) -> list[RunWarning]:
    message = "landing files still hold the key: delete them whole (a load file written again is a new full load)"
    warnings = [*notices.of_names(ERASED_IN_FILES, message, done.files)]
    warnings += notices.of_names(FILE_UNREADABLE, "landing files that can't be read may hold the key", unread)
    if others:
        message = "rows were moved to the key from others, under which their older changes stay: erase these too"
        keys = tuple(json.dumps(dict(zip(spec.keys, key, strict=True)), ensure_ascii=False) for key in others)
        warnings.append(RunWarning(code=ERASED_KEY_MOVED, message=message, count=len(keys), sample=keys))
    if not done.files and not any(done.removed.values()):
        message = (
            "no table or file holds the key; its hash is stored nevertheless; check that it is written as in the source"
        )
        warnings.append(RunWarning(code=ERASED_NOTHING, message=message))
    return warnings
