"""Erasures of a table: a document per key, named by its hash, and the lake's salt; no key in clear text."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import ERASED_BY_OTHER_KEYS, ERASURE_SALT_MISSING, LEDGER_CONFLICT
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage, read_if_there
from spark_jobs.ledger.commit_files import read_small
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rules.erasure import Bound, ErasedKeys

_SALT_BYTES = 32
_KEYED_BY = "keyed-by"
"""Document of what hashes depend on: the key's columns with their masks, and the table's names."""
_KEYS, _NAMES = "keys", "tables"


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """One erased key.

    Attributes:
        asked_at, done_at: ISO 8601 UTC, of the first time; `done_at` null while rows may be left.
        by, run_id: user and run of the first request.
        removed: table to rows removed, over all tries.
        files: landing files that held the key at the last search; the source must remove them.
        stored_until: ISO 8601 UTC; maintenance after this time removes the key from storage. Null before `done_at`.
        until: ISO 8601 UTC, time of the last request.
        sequence, fingerprints: see `Bound`.
        counted: tables whose rows `removed` has from an attempt that has not ended: they are counted before they go.
        rows, batch: the replica's rows without the key, and the ledger's batch then; null before they are counted.
    """

    hash: str
    table: str
    asked_at: str
    until: str
    by: str
    run_id: str
    removed: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    done_at: str | None = None
    stored_until: str | None = None
    sequence: str | None = None
    fingerprints: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    rows: int | None = None
    batch: int | None = None

    @property
    def bound(self) -> Bound:
        until = datetime.fromisoformat(self.until)
        return Bound(until=until, sequence=self.sequence, fingerprints=frozenset(self.fingerprints))


@dataclass(frozen=True)
class ErasureRegister:
    """The erasures of a table; `root` is the table's folder of them.

    The salt is the lake's: without it erased keys could be loaded again, so a table with erasures and no salt is
    refused. So is one with changed key columns or masks of them: no erased key would be recognized.
    """

    storage: Storage
    root: str
    spec: TableSpec

    def keys(self, files: Iterable[PlannedFile] = ()) -> ErasedKeys:
        """
        Args:
            files: files of the batch to exclude the keys from.

        Raises:
            FatalError: `ERASURE_SALT_MISSING`, `ERASED_BY_OTHER_KEYS`.
        """
        hashes = self.hashes()
        if not hashes:
            return ErasedKeys(table=self.spec.table, columns=self.spec.keys)
        stated = self._stated()
        if stated.get(_KEYS, self._keyed_by()) != self._keyed_by():
            raise self._by_others(stated[_KEYS], self._keyed_by())
        salt = self._stored_salt()
        if salt is None:
            raise self._salt_gone(self.spec.table)
        bound, names = functools.cache(self._bound), self._names(stated)
        return ErasedKeys(table=names[0], former=names[1:], salt=salt, hashes=hashes, columns=self.spec.keys,
                          bound=bound, files={file.path: file for file in files})  # fmt: skip

    def adopt(self, former: ErasureRegister) -> None:
        """Take over the erasures of the table's register under another name; idempotent.

        Raises:
            FatalError: `ERASED_BY_OTHER_KEYS`: both have erasures, by different keys.
        """
        hashes, own_hashes = former.hashes(), self.hashes()
        if not hashes:
            return
        stated, there = former._stated(), self._stated() if own_hashes else {}
        if _KEYS in there and there[_KEYS] != stated.get(_KEYS, there[_KEYS]):
            raise self._by_others(there[_KEYS], stated[_KEYS])
        names = [*former._names(stated), *(self._names(there) if own_hashes - hashes else ())]
        self._state({**stated, **there, _NAMES: list(dict.fromkeys(names))})
        for key_hash in sorted(hashes):
            erasure, mine = former.read(key_hash), self.read(key_hash) if key_hash in own_hashes else None
            if erasure is not None and (mine is None or mine.bound.until < erasure.bound.until):
                self.write(replace(erasure, table=self.spec.table))

    def _names(self, stated: Mapping[str, Any]) -> tuple[str, ...]:
        """Names that the hashes were made with; new ones are made with the first."""
        # The name in the source may have been the name in the lake, too.
        return tuple(stated.get(_NAMES) or dict.fromkeys((self.spec.table, self.spec.name_in_source)))

    def _bound(self, key_hash: str) -> Bound:
        erasure = self.read(key_hash)
        if erasure is None:
            raise RetriableError(LEDGER_CONFLICT, f"an erasure of {self.spec.table} was removed", remedy="run again")
        return erasure.bound

    def hashes(self) -> frozenset[str]:
        """Hashes of the erased keys; needs no salt."""
        names = (file.name for file in self.storage.list(self.root))
        return frozenset(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def salted(self) -> ErasedKeys:
        """As `keys`, also without erasures; the lake's first erasure creates the salt.

        From then on the table's keys must not change.

        Raises:
            FatalError: as `keys`; `ERASURE_SALT_MISSING` also when another table has erasures.
        """
        known = self.keys()
        if known:
            stated = self._stated()
            if _KEYS not in stated:  # lost
                self._state({**stated, _KEYS: self._keyed_by()})
            return known
        self._state({_KEYS: self._keyed_by(), _NAMES: [self.spec.table]})
        salt = self._stored_salt()
        if salt is None:
            self._require_first()
            made = json.dumps({"salt": secrets.token_hex(_SALT_BYTES)}).encode()
            self.storage.create(self.salt_path, made)
            salt = self._stored_salt()
        assert salt is not None  # noqa: S101 - put if absent: ours or another's is there now
        return ErasedKeys(table=self.spec.table, salt=salt, columns=self.spec.keys)

    def require_salt(self) -> None:
        """Refuse what `salted` refuses; writes nothing. Raises as that."""
        if not self.keys() and self._stored_salt() is None:
            self._require_first()

    def read(self, key_hash: str) -> Erasure | None:
        """
        Raises:
            FatalError: `LEDGER_DAMAGED`.
        """
        remedy = "restore the file from a version or backup; without it the key could be loaded again"
        return read_small(self.storage, self._path(key_hash), Erasure, remedy)

    def write(self, erasure: Erasure) -> None:
        self.storage.write(self._path(erasure.hash), codec.to_json(erasure).encode())

    def _keyed_by(self) -> list[str]:
        """The columns that hashes depend on: key columns, each with its mask, if any."""
        masks = {column.lower(): method for column, method in self.spec.mask.items()}
        return sorted(f"{name} {masks.get(name, '')}".rstrip() for name in map(str.lower, self.spec.keys))

    def _stated(self) -> dict[str, Any]:
        """What hashes depend on, as far as it was stored."""
        data = read_if_there(self.storage, join(self.root, _KEYED_BY))
        return {} if data is None else dict(json.loads(data))

    def _state(self, what: Mapping[str, Any]) -> None:
        self.storage.write(join(self.root, _KEYED_BY), json.dumps(what).encode())

    def _by_others(self, known: Sequence[str], now: Sequence[str]) -> FatalError:
        return FatalError(
            ERASED_BY_OTHER_KEYS,
            f"keys were erased from {self.spec.table} by [{', '.join(known)}], the metadata says "
            f"[{', '.join(now)}]: they would not be recognized and could be loaded again",
            where=join(self.root, _KEYED_BY),
            remedy="restore keys and their masks; or, once no landing file holds the erased rows any more, delete "
            "this folder",
        )

    def _require_first(self) -> None:
        """While other tables have erasures, a new salt would hide the loss of theirs and admit erased keys."""
        folder = self.salt_path.rpartition("/")[0]
        for file in self.storage.list(folder):
            if file.name.endswith(".json"):
                raise self._salt_gone(file.name.rpartition("/")[0].replace("/", "."))

    def _salt_gone(self, table: str) -> FatalError:
        return FatalError(
            ERASURE_SALT_MISSING,
            f"keys were erased from {table}, but the salt of their hashes is missing",
            where=self.salt_path,
            remedy="restore the file from a backup; without it erased keys could be loaded again",
        )

    def _path(self, key_hash: str) -> str:
        return join(self.root, f"{key_hash}.json")

    @property
    def salt_path(self) -> str:
        """File of the lake's salt."""
        return join(self.root.rsplit("/", 2)[0], "salt.json")

    def _stored_salt(self) -> bytes | None:
        data = read_if_there(self.storage, self.salt_path)
        return None if data is None else bytes.fromhex(json.loads(data)["salt"])
