"""Differences in the lake: written once, open until a person decides, and removed with their sides."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from airflow_gddl.contract.codec import from_json, to_document
from airflow_gddl.contract.features.shadow import DECIDED, FOUND, ShadowDifference, places_of, shadow_folder
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.stores import Storage
from airflow_gddl.stores.local import bare
from spark_jobs.batch.table_run import TableRun


@dataclass(frozen=True)
class KeptDifferences:
    """Of one table.

    Attributes:
        folder: see `shadow_folder`.
    """

    storage: Storage
    folder: str

    @classmethod
    def of(cls, run: TableRun) -> KeptDifferences:
        return cls(run.runtime.storage, shadow_folder(run.job.roots.lake, run.spec))

    def sides_of(self, batch_id: str, kind: str) -> str:
        """Folder of both sides of a comparison of a batch."""
        return join(self._place_of(batch_id, kind), "sides")

    def _place_of(self, batch_id: str, kind: str) -> str:
        return join(self.folder, f"{batch_id.replace('/', '@')}-{kind}")

    def keep(self, found: ShadowDifference) -> None:
        """Keep a difference, which waits for a decision even if there was one on an earlier attempt of the batch."""
        self.storage.delete(join(self._place_of(found.batch_id, found.kind), DECIDED))
        self._write(found)

    def all(self) -> Iterator[tuple[ShadowDifference, bool]]:
        """The differences, oldest batch first, and whether a person has decided."""
        for folder, decided in places_of(item.path for item in self.storage.list(self.folder)):
            yield from_json(ShadowDifference, self.storage.read(join(folder, FOUND)).decode()), decided

    def open(self) -> list[ShadowDifference]:
        """Those that wait for a decision."""
        return [found for found, decided in self.all() if not decided]

    def discard(self, place: str) -> None:
        """Remove what an attempt left in a folder of `sides_of`."""
        self.storage.delete(*(item.path for item in self.storage.list(place)))
        if not is_s3(place):
            shutil.rmtree(bare(place), ignore_errors=True)  # of folders alone
            with suppress(OSError):  # it has documents
                Path(bare(place)).parent.rmdir()

    def remove_sides(self, before: datetime) -> int:
        """Remove sides that are decided or were found before a time; returns the number of files."""
        old = [
            path
            for found, decided in self.all()
            if decided or datetime.fromisoformat(found.found_at) < before
            for side in found.sides.values()
            for path in (item.path for item in self.storage.list(side))
        ]
        self.storage.delete(*old)
        return len(old)

    def forget_values(self) -> None:
        """Remove all rows: somebody asked for a key to be erased."""
        for found, _ in self.all():
            for side in found.sides.values():
                self.discard(side)
            self._write(replace(found, keys=(), sides={}))

    def move(self, to: KeptDifferences, table: str) -> None:
        """Move all to a table's new name, without sides: these name data files of the old one."""
        for folder, decided in list(places_of(item.path for item in self.storage.list(self.folder))):
            found = from_json(ShadowDifference, self.storage.read(join(folder, FOUND)).decode())
            place = to._place_of(found.batch_id, found.kind)
            if decided:
                self.storage.write(join(place, DECIDED), self.storage.read(join(folder, DECIDED)))
            to._write(replace(found, table=table, sides={}))
            self.storage.delete(join(folder, FOUND))
        self.discard(self.folder)

    def _write(self, found: ShadowDifference) -> None:
        path = join(self._place_of(found.batch_id, found.kind), FOUND)
        self.storage.write(path, to_document(found).encode())
