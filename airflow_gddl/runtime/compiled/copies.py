"""Copies of compiled metadata in the lake, for machines that can't read the metadata and have none of their own."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_gddl import __version__
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.compiled.cache import FORMAT
from airflow_gddl.stores import Storage, StoredObject, open_store

_KEPT = 2
_NAME = re.compile(r"(pipelines/)?[A-Za-z0-9_-][A-Za-z0-9_.-]*\.json")


@dataclass(frozen=True)
class MetadataCopy:
    """A stored generation.

    Attributes:
        built_at: ISO 8601 UTC.
        files: content by name, relative to the generation's folder.
    """

    built_at: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Copies:
    """The copies of one metadata folder.

    Args:
        root: of the lake; local or `s3://`.
        metadata: folder or URL that was compiled.
        environ: S3 settings.

    Raises (every method):
        GddlError: as `Storage`.
    """

    root: str
    metadata: str
    environ: Mapping[str, str] = field(repr=False)

    @property
    def folder(self) -> str:
        # Only for this package version: another version may not read it.
        whose = f"{self.metadata}\n{__version__} {FORMAT}"
        return join(self.root, STATE, "airflow", "metadata", hashlib.sha256(whose.encode()).hexdigest()[:16])

    def keep(self, signature: str, built_at: str, generation: Path) -> None:
        """Write the generation, unless a copy of the same metadata exists; older copies are removed."""
        store, name = self._store, f"{signature}.json.gz"
        copies = self._newest_first(store)
        if any(item.name == name for item in copies):
            return
        paths = sorted([*generation.glob("*.json"), *generation.glob("pipelines/*.json")])
        files = {path.relative_to(generation).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        text = json.dumps({"built_at": built_at, "files": files}, separators=(",", ":"))
        store.write(join(self.folder, name), gzip.compress(text.encode(), mtime=0))
        store.delete(*(item.path for item in copies[_KEPT - 1 :]))

    def newest(self) -> MetadataCopy | None:
        """Null when there is none.

        Raises:
            RetriableError: `METADATA_UNREACHABLE`: the copy is damaged.
        """
        copies = self._newest_first(self._store)
        if not copies:
            return None
        try:
            data = json.loads(gzip.decompress(self._store.read(join(self.folder, copies[0].name))))
            files = {str(name): str(text) for name, text in data["files"].items() if _NAME.fullmatch(name)}
            return MetadataCopy(str(data["built_at"]), files)
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "make the metadata readable; the copy is then rewritten"
            raise RetriableError(
                "METADATA_UNREACHABLE", f"the copy is damaged: {error}", where=self.folder, remedy=remedy
            ) from error

    def _newest_first(self, store: Storage) -> list[StoredObject]:
        """Without those whose writing has not ended, or was killed."""
        copies = [item for item in store.list(self.folder) if not item.is_unfinished]
        return sorted(copies, key=lambda item: item.modified, reverse=True)

    @property
    def _store(self) -> Storage:
        return open_store(self.environ)
