"""Versions of a table's Iceberg metadata in the store, as their publisher and Iceberg catalogs read and write them."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage

DELTA_VERSION = "gddl.delta-version"
"""Table property: version of the Delta table that the metadata is of."""


DELTA_TABLE = "gddl.delta-table"
"""Table property: id of that Delta table; one that was made again has another, and may have the same version."""


SNAPSHOT = "current-snapshot-id"
"""Name under which entries of catalogs show the snapshot."""


_VERSION = re.compile(r"v(\d+)\.metadata\.json")


@dataclass(frozen=True)
class MetadataVersions:
    """The metadata versions of an Iceberg table.

    Attributes:
        table: folder of the Iceberg table.
    """

    storage: Storage
    table: str

    @property
    def folder(self) -> str:
        return join(self.table, "metadata")

    def path(self, version: int) -> str:
        return join(self.folder, f"v{version}.metadata.json")

    @property
    def _hint(self) -> str:
        return join(self.folder, "version-hint.text")

    def newest(self) -> int:
        """Number of the newest version; 0: there is none. The hint may be one behind, or lost."""
        version = self._hinted()
        if version is None:
            names = (_VERSION.fullmatch(file.name) for file in self.storage.list(self.folder))
            version = max((int(match[1]) for match in names if match), default=0)
        while self.storage.stat(self.path(version + 1)) is not None:
            version += 1
        return version

    def read(self, version: int) -> bytes:
        return self.storage.read(self.path(version))

    def written(self) -> tuple[int | None, int]:
        """Delta version that the newest metadata describes, None without any, and its format version."""
        metadata = self._newest_metadata()
        version = metadata.get("properties", {}).get(DELTA_VERSION)
        return int(version) if version else None, metadata.get("format-version", 0)

    def identity(self) -> Mapping[str, str]:
        """What tells the newest version from others; empty: there is none."""
        metadata = self._newest_metadata()
        if not metadata:
            return {}
        version = metadata.get("properties", {}).get(DELTA_VERSION, "")
        return {DELTA_VERSION: version, SNAPSHOT: str(metadata.get("current-snapshot-id"))}

    def _newest_metadata(self) -> Mapping[str, Any]:
        newest = self.newest()
        return json.loads(self.read(newest)) if newest else {}

    def create(self, version: int, metadata: bytes) -> bool:
        """False: another writer made this version."""
        made = self.storage.create_once(self.path(version), metadata)
        if made:
            self.point(version)
        return made

    def point(self, version: int) -> None:
        """Set the hint to this version."""
        if self._hinted() != version:
            self.storage.write(self._hint, str(version).encode())

    def _hinted(self) -> int | None:
        try:
            return int(self.storage.read(self._hint))
        except (FileNotFoundError, ValueError):
            return None

    def withdraw(self) -> int:
        """Remove the metadata, so that no reader opens files that will be removed; returns its number of files."""
        paths = [file.path for file in self.storage.list(self.folder)]
        if paths:
            self.storage.delete(self._hint)
            self.storage.delete(*paths)
        return len(paths)

    def current_at(self, before: datetime) -> int:
        """Number of the version that was the newest one then, or of the oldest one that is left."""
        written = {int(m[1]): f.modified for f in self.storage.list(self.folder) if (m := _VERSION.fullmatch(f.name))}
        old = [version for version, modified in written.items() if modified < before.timestamp()]
        return max(old) if old else min(written, default=0)

    def clean(self, before: datetime, needed: Iterable[str]) -> int:
        """Remove files that no reader who began after `before` needs; returns their number.

        Metadata that a catalog wrote here is kept like our own: what was the newest then, and all since.

        Args:
            needed: paths of the manifests, and of the lists of them, of the newest version and of the one current then.
        """
        kept = {self._hint, self.path(self.newest()), self.path(self.current_at(before)), *needed}
        old = [file for file in self.storage.list(self.folder) if file.modified < before.timestamp()]
        of_catalogs = [f for f in old if f.name.endswith(".metadata.json") and not _VERSION.fullmatch(f.name)]
        kept |= {file.path for file in sorted(of_catalogs, key=lambda one: one.modified)[-1:]}
        expired = [file.path for file in old if file.path not in kept]
        self.storage.delete(*expired)
        return len(expired)


def parsed(metadata: bytes) -> Any:
    """pyiceberg's `TableMetadata`."""
    return importlib.import_module("pyiceberg.table.metadata").TableMetadataUtil.parse_raw(metadata.decode())


@dataclass
class VersionedCatalog:
    """The part of pyiceberg's `Catalog` that a `Table` commits through.

    Attributes:
        base: version that the table was read from.
        lost: another writer committed first.
    """

    versions: MetadataVersions
    base: int
    lost: bool = False

    def supports_server_side_planning(self) -> bool:
        return False

    def _delete_old_metadata(self, *_: Any) -> None:
        """Called by pyiceberg after a commit; `MetadataVersions.clean` removes what is old enough."""

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:  # noqa: ARG002 - the version decides
        """Write the next version, with no snapshot but the newest one."""
        update, tables = importlib.import_module("pyiceberg.table.update"), importlib.import_module("pyiceberg.table")
        metadata = update.update_table_metadata(table.metadata, updates)
        old = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id != metadata.current_snapshot_id]
        if old:
            metadata = update.update_table_metadata(metadata, (update.RemoveSnapshotsUpdate(snapshot_ids=old),))
        self.lost = not self.versions.create(self.base + 1, metadata.model_dump_json().encode())
        location = self.versions.path(self.base + 1)
        return tables.CommitTableResponse(metadata=metadata, metadata_location=location)


@dataclass(frozen=True)
class StoreIO:
    """pyiceberg's `FileIO` over a `Storage`."""

    storage: Storage
    properties: Mapping[str, str] = field(default_factory=dict)

    def new_input(self, location: str) -> StoreFile:
        return StoreFile(self.storage, location)

    new_output = new_input

    def delete(self, location: Any) -> None:
        self.storage.delete(location if isinstance(location, str) else location.location)


@dataclass(frozen=True)
class StoreFile:
    """pyiceberg's `InputFile` and `OutputFile`."""

    storage: Storage
    location: str

    def __len__(self) -> int:
        entry = self.storage.stat(self.location)
        if entry is None:
            raise FileNotFoundError(self.location)
        return entry.size

    def exists(self) -> bool:
        return self.storage.stat(self.location) is not None

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - every stream here is seekable
        return io.BytesIO(self.storage.read(self.location))

    def to_input_file(self) -> StoreFile:
        return self

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002 - names of manifests are unique
        return _Written(self)


class _Written(io.BytesIO):
    """Bytes that are written to the store when closed."""

    def __init__(self, file: StoreFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.storage.write(self._file.location, self.getvalue())
        super().close()
