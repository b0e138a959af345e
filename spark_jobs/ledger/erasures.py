"""Erasures of a table: a document per key, named by its hash, and the lake's salt; no key in clear text."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, read_if_there
from spark_jobs.plan.files import PlannedFile
from spark_jobs.rules.erased_keys import Bound, ErasedKeys

_SALT_BYTES = 32
_KEYED_BY = "keyed-by"


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """One erased key.

    Attributes:
        asked_at, done_at: ISO 8601 UTC, of the first time; `done_at` null while rows may be left.
        by, run_id: user and run of the first request.
        removed: table to rows removed, over all tries.
        files: landing files that held the key at the last search; the source must remove them.
        stored_until: ISO 8601 UTC; maintenance after this time removes the key from storage. Null before `done_at`.
        until: ISO 8601 UTC, time of the last request; null in records of earlier releases.
        sequence, fingerprints: see `Bound`.
    """

    hash: str
    table: str
    asked_at: str
    by: str
    run_id: str
    removed: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    done_at: str | None = None
    stored_until: str | None = None
    until: str | None = None
    sequence: str | None = None
    fingerprints: tuple[str, ...] = ()

    @property
    def bound(self) -> Bound:
        until = datetime.fromisoformat(self.until or self.done_at or self.asked_at)
        return Bound(until=until, sequence=self.sequence, fingerprints=frozenset(self.fingerprints))


@dataclass(frozen=True)
class ErasureRegister:
    """The erasures of a table; `root` is the table's folder of them.

    The salt is the lake's: without it erased keys could be loaded again, so a table with erasures and no salt is
    refused. So is one with changed key columns or masks of them: no erased key would be recognized.

    Attributes:
        columns: the table's current keys; `masks`: column to method, also of others.
    """

    storage: Storage
    root: str
    table: str
    columns: tuple[str, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)

    def keys(self, files: Iterable[PlannedFile] = ()) -> ErasedKeys:
        """
        Args:
            files: files of the batch to exclude the keys from.

        Raises:
            FatalError: `ERASURE_SALT_MISSING`, `ERASED_BY_OTHER_KEYS`.
        """
        hashes = self.hashes()
        if not hashes:
            return ErasedKeys(table=self.table, columns=self.columns)
        self._require_same_keys()
        salt = self._stored_salt()
        if salt is None:
            raise self._salt_gone(self.table)
        bound = functools.cache(self._bound)
        return ErasedKeys(table=self.table, salt=salt, hashes=hashes, columns=self.columns, bound=bound,
                          files={file.path: file for file in files})  # fmt: skip

    def _bound(self, key_hash: str) -> Bound:
        found = self.read(key_hash)
        if found is None:
            raise RetriableError("LEDGER_CONFLICT", f"an erasure of {self.table} was removed", remedy="run again")
        return found.bound

    def hashes(self) -> frozenset[str]:
        """Hashes of the erased keys; needs no salt."""
        names = [found.path.rpartition("/")[2] for found in self.storage.list(self.root)]
        return frozenset(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def salted(self) -> ErasedKeys:
        """As `keys`, also without erasures; the lake's first erasure creates the salt.

        From then on the table's keys must not change.

        Raises:
            FatalError: as `keys`; `ERASURE_SALT_MISSING` also when another table has erasures.
        """
        known = self.keys()
        path, keyed_by = join(self.root, _KEYED_BY), json.dumps({"keys": self._keyed_by()}).encode()
        if known:
            self.storage.create(path, keyed_by)  # lost, or of an erasure before it was stored
            return known
        self.storage.write(path, keyed_by)
        salt = self._stored_salt()
        if salt is None:
            self._require_first()
            made = json.dumps({"salt": secrets.token_hex(_SALT_BYTES)}).encode()
            self.storage.create(self._salt_path, made)
            salt = self._stored_salt()
        assert salt is not None  # noqa: S101 - put if absent: ours or another's is there now
        return ErasedKeys(table=self.table, salt=salt, columns=self.columns)

    def read(self, key_hash: str) -> Erasure | None:
        data = read_if_there(self.storage, self._path(key_hash))
        return None if data is None else codec.from_json(Erasure, data.decode())

    def write(self, erasure: Erasure) -> None:
        self.storage.write(self._path(erasure.hash), codec.to_json(erasure).encode())

    def _keyed_by(self) -> list[str]:
        """The columns that hashes depend on: key columns, each with its mask, if any."""
        masks = {column.lower(): method for column, method in self.masks.items()}
        return sorted(f"{name} {masks.get(name, '')}".rstrip() for name in map(str.lower, self.columns))

    def _require_same_keys(self) -> None:
        path = join(self.root, _KEYED_BY)
        data = read_if_there(self.storage, path)
        known = self._keyed_by() if data is None else json.loads(data)["keys"]
        if known != self._keyed_by():
            raise FatalError(
                "ERASED_BY_OTHER_KEYS",
                f"keys were erased from {self.table} by [{', '.join(known)}], the metadata says "
                f"[{', '.join(self._keyed_by())}]: they would not be recognized and could be loaded again",
                where=path,
                remedy="restore keys and their masks; or, once no landing file holds the erased rows any more, delete "
                "this folder",
            )

    def _require_first(self) -> None:
        """While other tables have erasures, a new salt would hide the loss of theirs and admit erased keys."""
        folder = self._salt_path.rpartition("/")[0]
        for found in self.storage.list(folder):
            name = found.path.rpartition("/")[2]
            if name.endswith(".json") and name != _KEYED_BY:
                raise self._salt_gone(found.name.rpartition("/")[0].replace("/", "."))

    def _salt_gone(self, table: str) -> FatalError:
        return FatalError(
            "ERASURE_SALT_MISSING",
            f"keys were erased from {table}, but the salt of their hashes is missing",
            where=self._salt_path,
            remedy="restore the file from a backup; without it erased keys could be loaded again",
        )

    def _path(self, key_hash: str) -> str:
        return join(self.root, f"{key_hash}.json")

    @property
    def _salt_path(self) -> str:
        return join(self.root.rsplit("/", 2)[0], "salt.json")

    def _stored_salt(self) -> bytes | None:
        data = read_if_there(self.storage, self._salt_path)
        return None if data is None else bytes.fromhex(json.loads(data)["salt"])
