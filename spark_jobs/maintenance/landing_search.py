"""Finds landing files with a key: reads every file, since a re-delivered change is in the change table only once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.contract.layout import landing_root
from airflow_gddl.contract.sql_types import SqlType
from spark_jobs.dialects.probe import probe_all, reading
from spark_jobs.dialects.probed import Probed, Unreadable
from spark_jobs.dialects.roles import match
from spark_jobs.engines.port import TableContext
from spark_jobs.plan.columns import before_image_name, landed_name
from spark_jobs.plan.files import PlannedFile
from spark_jobs.rules.erased_keys import key_text
from spark_jobs.rules.read import read_file


@dataclass(frozen=True, kw_only=True)
class Search:
    """The key to find.

    Attributes:
        key: key column to its text as the source has it, before any mask.
        kinds: their types.
    """

    context: TableContext
    key: Mapping[str, str]
    kinds: Mapping[str, SqlType]

    def run(self) -> tuple[tuple[PlannedFile, ...], tuple[str, ...]]:
        """The files that hold the key, and paths of those that can't be read."""
        holding: list[PlannedFile] = []
        unread: list[str] = []
        for file in self._files():
            found = self._holds(file)
            if found is None:
                unread.append(file.path)
            elif found:
                holding.append(file)
        return tuple(holding), tuple(unread)

    def _files(self) -> Iterator[PlannedFile]:
        root = self.context.layout.landing.rstrip("/")
        for found in self.context.storage.list(root, within=landing_root(root)):
            names = self.context.dialect.classify(found.name)
            if names is not None and not found.refused:
                yield PlannedFile(
                    path=found.path, kind=names[0], format=names[1], size=found.size, etag=found.etag,
                    modified=found.modified_at, fingerprint="", generation=1,
                )  # fmt: skip

    def _holds(self, file: PlannedFile) -> bool | None:
        """None for a file that can't be read."""
        try:
            with reading(file):
                return self._holds_key(file)
        except QuarantinableError:
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
        found = []
        for key in self.key:
            own, before = match(names, key), match(names, before_image_name(prefix, key))
            if own is None or (prefix and all(match(names, before_image_name(prefix, k)) is None for k in self.key)):
                return None
            mine = values[names.index(own)].to_pylist()
            if prefix and before is not None:
                old = values[names.index(before)].to_pylist()
                mine = [a if b is None else b for a, b in zip(mine, old, strict=True)]
            found.append(mine)
        return found

    def _is_key(self, row: tuple[Any, ...]) -> bool:
        wanted = self.key.items()
        return all(key_text(v, self.kinds[name]) == text for v, (name, text) in zip(row, wanted, strict=True))
