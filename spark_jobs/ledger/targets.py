"""Records the lake table that a source's table is loaded into: another target loads the table again.

    _gddl/targets/<schema>/<name>.json             the source of this table
    _gddl/sources/<source>/<schema>/<name>.json    the target of a source's table
    _gddl/folders/<digest>.json                    the target of a landing folder, under any source name
    _gddl/sharded/<source>/<schema>/<name>.json    the target of a row with `shards`

Kept for tables of declared sources and for those that have a target; written by their first run. A row with `shards`
has a record of its own, since its source may load the same table alone, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import TARGET_TAKEN
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import STATE, LandingFolder, Layout, join
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.ledger.commit_files import read_small
from spark_jobs.ledger.erasures import ErasureRegister
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.taken_snapshots import read_taken

_UNDECLARED = ""


@dataclass(frozen=True, kw_only=True)
class TargetRecord:
    """The target of a table, and the table; `source` is empty where it is not declared."""

    target: str
    source: str
    table: str


@dataclass(frozen=True)
class TargetRecords:
    """The records of one table."""

    storage: Storage
    roots: Roots
    spec: TableSpec

    @property
    def is_kept(self) -> bool:
        return self.spec.landing is not None or self.spec.source_table is not None or bool(self.spec.shards)

    @property
    def _own(self) -> TargetRecord:
        declared = self.spec.landing is not None or bool(self.spec.shards)
        source = self.spec.source if declared else _UNDECLARED
        return TargetRecord(target=self.spec.table, source=source, table=self.spec.name_in_source)

    def former_target(self, *, keep: bool) -> str:
        """The target into which the table was loaded before its row named another; empty: it has had no other.

        Args:
            keep: record the present target, so that the next run has had no other; false records nothing.

        Raises:
            FatalError: `TARGET_TAKEN`, `LEDGER_DAMAGED`, `ERASED_BY_OTHER_KEYS`.
        """
        if not self.is_kept:
            return ""
        recorded = list[str]()
        for path in self._placements:
            record = self._read(path)
            if record is not None and record.target == self.spec.table:
                return ""
            recorded += [record.target] if record is not None else []
        self._require_free()
        before = next(filter(self._is_loaded, (*recorded, *self._name_before)), "")
        if keep:
            if before:  # its landing files are read again, and erased keys with them
                former = replace(self.spec, table=before)
                self._register(self.spec).adopt(self._register(former))
            self._note()
        return before

    def _register(self, spec: TableSpec) -> ErasureRegister:
        return ErasureRegister(self.storage, Layout.of(self.roots, spec).erased, spec)

    def _note(self) -> None:
        """Overwrite the records."""
        data = codec.to_json(self._own).encode()
        for path in (self._of_target(self.spec.table), *reversed(self._placements)):
            self.storage.write(path, data)

    def _require_free(self) -> None:
        """Refuse a target that is another table's."""
        target = self.spec.table
        owner = self._read(self._of_target(target))
        if owner is not None and self._is_same(owner):
            return
        if owner is not None and self._has_ledger(target):
            raise _taken(target, f"{owner.source}:{owner.table}" if owner.source else owner.table)
        if (folder := self._other_folder(target)) is not None:
            raise _taken(target, f"files of {folder}")

    @property
    def _name_before(self) -> tuple[str, ...]:
        """The table's name before its row had a target, if it was loaded by that name, which kept no record."""
        name = self.spec.name_in_source
        is_own = name != self.spec.table and not self.spec.shards and self._other_folder(name) is None
        return (name,) if is_own else ()

    def _is_same(self, owner: TargetRecord) -> bool:
        """Either name may be empty: the source was undeclared before, or is now. Rows with shards may change it."""
        declared = self._own
        if owner.table != declared.table:
            return False
        if owner.source == declared.source or _UNDECLARED in (owner.source, declared.source):
            return True
        return not self._ledger(owner.target).shards.isdisjoint(self.spec.shards)

    def _other_folder(self, target: str) -> str | None:
        """Where a lake's table was loaded from, if no file of it is in this table's folder; None: it may be its own."""
        folder = LandingFolder.of(self.roots, self.spec).path
        paths = self._loaded_from(target)
        if not paths or any(path.startswith(f"{folder}/") for path in paths):
            return None
        return paths[0].rpartition("/")[0]

    def _loaded_from(self, target: str) -> Sequence[str]:
        """Paths below the folders that a lake's table was loaded from."""
        ledger = self._ledger(target)
        applied = ledger.state.applied
        if applied is None or applied.mode != "snapshots":
            return list(ledger.all_entries())
        known = read_taken(self.storage, Layout.of(self.roots, TableSpec(table=target, keys=())).state)
        landing = known.landing if known is not None else join(self.roots.landing, *target.split(".", 1))
        return [join(landing, "")]

    def _is_loaded(self, target: str) -> bool:
        """Whether a lake's table was loaded as this one is: from one source, or from several."""
        ledger = self._ledger(target)
        return ledger.has_shards if self.spec.shards else ledger.state.batch > 0

    def _has_ledger(self, target: str) -> bool:
        ledger = self._ledger(target)
        return ledger.state.batch > 0 or ledger.has_shards

    def _ledger(self, target: str) -> Ledger:
        return Ledger.open(self.storage, Layout.of(self.roots, TableSpec(table=target, keys=())).state)

    @property
    def _placements(self) -> tuple[str, ...]:
        """Paths of the records of the table's target."""
        if self.spec.shards:
            return (self._of_source("sharded"),)
        return self._of_source("sources"), self._of_folder

    def _of_source(self, kind: str) -> str:
        return join(self.roots.lake, STATE, kind, self._own.source or "_", *_parts(self._own.table))

    @property
    def _of_folder(self) -> str:
        folder = LandingFolder.of(self.roots, self.spec).path
        digest = hashlib.blake2b(folder.encode(), digest_size=16).hexdigest()
        return join(self.roots.lake, STATE, "folders", f"{digest}.json")

    def _of_target(self, target: str) -> str:
        return join(self.roots.lake, STATE, "targets", *_parts(target))

    def _read(self, path: str) -> TargetRecord | None:
        return read_small(self.storage, path, TargetRecord, "delete it; the next run rewrites it")


def _parts(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, f"{name}.json"


def _taken(target: str, owner: str) -> FatalError:
    remedy = "give this table another target; or remove the table that is there, with its folder in _gddl/ledger"
    return FatalError(TARGET_TAKEN, f"the lake's table {target} is that of {owner}", remedy=remedy)
