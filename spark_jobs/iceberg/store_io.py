"""Adapters of `Storage` to pyiceberg's `FileIO`, `InputFile` and `OutputFile`.

Not subclasses of these, so that a job without pyiceberg can import the module.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.stores import Storage


@dataclass(frozen=True)
class StoreIO:
    """pyiceberg's `FileIO` over a `Storage`."""

    storage: Storage
    properties: Mapping[str, str] = field(default_factory=dict)

    def new_input(self, location: str) -> StoreFile:
        return StoreFile(self.storage, location)

    def new_output(self, location: str) -> StoreFile:
        return StoreFile(self.storage, location)

    def delete(self, location: Any) -> None:
        self.storage.delete(location if isinstance(location, str) else location.location)


@dataclass(frozen=True)
class StoreFile:
    """pyiceberg's `InputFile` and `OutputFile`."""

    storage: Storage
    location: str

    def __len__(self) -> int:
        found = self.storage.stat(self.location)
        if found is None:
            raise FileNotFoundError(self.location)
        return found.size

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
