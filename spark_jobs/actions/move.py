"""Moves a table to another name: copies, records, then removes the old one. Interrupted, it is run again.

claims of both names ─► notes in both ledger folders ─► copies ─► comparison ─► records of its target ─► the new name
counts ─► the old one is removed. Readers find the old tables until the new ones are whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from airflow_gddl.contract.actions import Move
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import STATE, Layout, join
from airflow_gddl.contract.published import RegistrationState
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores.lake_files import RegistrationStore
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.catalogs.registrar import is_iceberg
from spark_jobs.features import features_of, installed_features
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.erasures import ErasureRegister
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.move_note import NOTE, MoveNote, read_note, write_note
from spark_jobs.ledger.targets import TargetRecords

_AT_ONCE = 8
_LEFT = ("claims/", NOTE)
"""Files that stay in the old ledger folder."""


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Move the table to the target that the job names; `details` has `from`, `to` and `files`.

    Raises:
        FatalError: `MOVE_NOT_POSSIBLE`, `TARGET_TAKEN`.
        RetriableError: `TABLE_BUSY`.
    """
    new = run.job.options.asked(Move).to
    if (fault := table_name_fault(new)) or new == run.spec.table:
        raise _impossible(run.spec.table, new, fault or "it has this name", "name another one as schema.name")
    work = _Move(run, run.spec, _renamed(run.spec, new))
    with run.claim() as old_claim, work.claim_new() as new_claim:
        files = work.carry_out(old_claim, new_claim)
    run.report("done")
    return run.result(totals, status="succeeded", details={"from": run.spec.table, "to": new, "files": files})


def _renamed(spec: TableSpec, table: str) -> TableSpec:
    name = spec.name_in_source
    return replace(spec, table=table, source_table=None if name == table else name)


@dataclass(frozen=True)
class _Move:
    run: TableRun
    old: TableSpec
    new: TableSpec

    def _layout(self, spec: TableSpec) -> Layout:
        return Layout.of(self.run.job.roots, spec)

    def claim_new(self) -> Claim:
        state, runtime = self._layout(self.new).state, self.run.runtime
        return Claim.acquire(runtime.storage, state, self.run.job.run_id, runtime.clock)

    def carry_out(self, old_claim: Claim, new_claim: Claim) -> int:
        """Number of copied files, including earlier attempts."""
        storage, old, new = self.run.runtime.storage, self._layout(self.old), self._layout(self.new)
        note, files = read_note(storage, old.state), 0
        if note is None or note.new != self.new.table:
            self._require_possible(note)
            note = MoveNote(old=self.old.table, new=self.new.table, at=iso(self.run.runtime.clock()))
            write_note(storage, new.state, note)
            self.run.report("noted")
            write_note(storage, old.state, note)
        if read_note(storage, new.state) is not None:
            files = self._copied()
            ErasureRegister.of(storage, new, self.new).adopt(ErasureRegister.of(storage, old, self.old))
            self.run.report("copied", rows=files)
            old_claim.check()
            new_claim.check()
            self._record()
            self.run.report("recorded")
            for feature in installed_features():  # an erasure by the new name finds what they keep
                feature.move(self.run, self.new)
            storage.delete(join(new.state, NOTE))
        self.run.report("counts")
        run = replace(self.run, spec=self.new)
        for feature in features_of(run):  # readers find the new table, or the next run warns
            feature.at_end(run)
        self._remove_old()
        return files

    def _require_possible(self, note: MoveNote | None) -> None:
        storage, old, new = self.run.runtime.storage, self._layout(self.old), self._layout(self.new)
        if note is not None:
            raise _impossible(self.old.table, self.new.table, f"it was moved to {note.new}", f"name {note.new}")
        ledger = Ledger.open(storage, old.state)
        if not ledger.state.batch:
            remedy = "set the metadata row's target; the first load takes it"
            raise _impossible(self.old.table, self.new.table, "nothing was loaded under this name", remedy)
        plan = ledger.plan()
        if plan is not None and plan.mode == "refresh":
            remedy = f"run {self.old.table} under its old target until it is done"
            raise _impossible(self.old.table, self.new.table, "a rebuild is not finished", remedy)
        unfinished = read_note(storage, new.state)
        if unfinished is not None and unfinished.old not in (self.old.table, self.new.table):
            remedy = f"finish that one first: `gddl move --table {unfinished.old} --to {unfinished.new}`"
            raise FatalError("TARGET_TAKEN", f"{unfinished.old} is being moved to {unfinished.new}", remedy=remedy)
        if TargetRecords(storage, self.run.job.roots, self.new).is_of_others(self.old.table):
            where = f"it was not loaded from {old.landing}"
            raise _impossible(self.old.table, self.new.table, where, "name the table that its metadata row loads into")
        # Neither this move was started, nor one away from the name.
        if unfinished is None or unfinished.old == self.new.table:
            for name, folder in _folders(new):
                # Failed runs after an earlier change of the target have left records.
                if name != "runs" and any(not file.name.startswith(_LEFT) for file in storage.list(folder)):
                    remedy = "name another one, or remove what is there"
                    raise FatalError("TARGET_TAKEN", f"{folder} is not empty", remedy=remedy)

    def _copied(self) -> int:
        """Copy missing files: data, then logs of Delta tables, then the ledger; returns the number of all files."""
        storage, count = self.run.runtime.storage, 0
        new = dict(_folders(self._layout(self.new)))
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="move") as pool:
            for name, folder in _folders(self._layout(self.old)):
                there = {stored.name: stored.size for stored in storage.list(new[name])}
                wanted = {
                    stored.name: stored.size for stored in storage.list(folder) if not stored.name.startswith(_LEFT)
                }
                for step in _in_order([file for file in wanted if file not in there]):
                    pairs = [(join(folder, file), join(new[name], file)) for file in step]
                    count += len(list(pool.map(self._copy, pairs)))
                count += len(there.keys() & wanted.keys())
                self.run.report(f"copied {name}", rows=len(wanted))
                self._require_equal(name, wanted, {stored.name: stored.size for stored in storage.list(new[name])})
        return count

    def _copy(self, paths: tuple[str, str]) -> None:
        source, target = paths
        storage, layout = self.run.runtime.storage, self._layout(self.old)
        try:
            if not source.startswith((f"{layout.runs}/", f"{layout.erased}/")):
                storage.copy(source, target)
                return
            data = storage.read(source)
        except FileNotFoundError as error:  # records of runs are archived meanwhile
            raise _incomplete(self.old.table, self.new.table, f"{source} was removed meanwhile") from error
        try:  # these documents name their table
            document = json.loads(data)
        except ValueError:
            document = None
        if isinstance(document, dict) and document.get("table") == self.old.table:
            renamed = json.dumps({**document, "table": self.new.table}, ensure_ascii=False)
            data = renamed.encode(errors="surrogateescape")
        storage.write(target, data)

    def _require_equal(self, name: str, wanted: dict[str, int], there: dict[str, int]) -> None:
        is_document = name in ("runs", "erased")
        lost = [file for file, size in wanted.items() if file not in there or (not is_document and there[file] != size)]
        if lost:
            what = f"{len(lost)} files of {name} are not as in {self.old.table}, e.g. {lost[0]}"
            raise _incomplete(self.old.table, self.new.table, what)

    def _record(self) -> None:
        records = TargetRecords(self.run.runtime.storage, self.run.job.roots, self.new)
        records.note()
        records.forget(self.old.table)
        self._carry_registration()

    def _carry_registration(self) -> None:
        """The catalog's entry follows with the next run, which has to know that it is this table's."""
        registrations = RegistrationStore(self.run.runtime.storage, self.run.job.roots.lake)
        known = registrations.get(self.old)
        if known != RegistrationState():
            registrations.put(self.new, replace(known, version=None))

    def _remove_old(self) -> None:
        storage, layout = self.run.runtime.storage, self._layout(self.old)
        registrations, catalog = RegistrationStore(storage, self.run.job.roots.lake), self.old.catalog or ""
        # An Iceberg catalog could not point an entry elsewhere whose metadata is gone.
        if not is_iceberg(self.run.job.catalogs.get(catalog)) or not registrations.get(self.old).tables:
            for feature in installed_features():
                feature.withdraw(self.run)
        registrations.forget(self.old)
        streams = join(self.run.job.roots.lake, STATE, "streams", self.old.schema_name, self.old.name)
        # Differences of snapshots that were not loaded are made again for the new table.
        captured = (layout.landing,) if self.old.mode == "snapshots" else ()
        for folder in (*(folder for _, folder in _folders(layout)), streams, *captured):
            files = [file for file in storage.list(folder) if not file.name.startswith(_LEFT)]
            # Logs first: a Delta table without its log is none, one without its data is broken.
            logs = [file.path for file in files if "_delta_log/" in file.name]
            storage.delete(*reversed(logs))
            storage.delete(*(file.path for file in files if "_delta_log/" not in file.name))
            storage.prune(folder, self.run.job.roots.lake)


def _incomplete(old: str, new: str, what: str) -> RetriableError:
    return RetriableError(
        "MOVE_INCOMPLETE", what, remedy=f"run `gddl move --table {old} --to {new}` again; the old table is as it was"
    )


def _folders(layout: Layout) -> Iterator[tuple[str, str]]:
    """A table's folders by kind, the ledger last."""
    for name in ("changes", "replica", "history", "errors", "tombstones", "erased", "runs", "state"):
        yield name, getattr(layout, name)


def _in_order(files: list[str]) -> Iterator[list[str]]:
    """Data first; then checkpoints, which a log's commits depend on; then its commits."""
    yield [file for file in files if "_delta_log/" not in file]
    logs = [file for file in files if "_delta_log/" in file]
    yield [file for file in logs if not file.endswith(".json")]
    yield from ([file] for file in sorted(logs) if file.endswith(".json"))


def _impossible(old: str, new: str, why: str, remedy: str) -> FatalError:
    return FatalError("MOVE_NOT_POSSIBLE", f"{old} can't become {new!r:.80}: {why}", remedy=remedy)
