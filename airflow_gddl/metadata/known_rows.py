"""Rows that an earlier load found valid: neither equal files are parsed again, nor equal rows checked.

Equal is what a row's specification is made of: its values and those of its file, its keys in another file, what the
settings say of rows, and the versions of this package and of those that checks use. Rows with problems are not known:
they are read again, and reported where they are. What rows mean for each other (names that are taken, dependencies) is
found anew in each load.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from airflow_gddl import __version__
from airflow_gddl.contract.basics import CONTRACT_VERSION
from airflow_gddl.contract.codec import kept_compact, restored
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.keys import Keys, KeysEntry
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.rows import KnownRow, Row, TableFile, assess, digest_of
from airflow_gddl.metadata.settings import Settings

_USED = ("croniter", "sqlglot")
"""Packages that checks of rows use."""


class KnownFile(NamedTuple):
    """`digest`: of its name and content; empty where not all of its rows are known."""

    digest: str
    rows: tuple[KnownRow, ...]


class KnownRows:
    """What a load knows of an earlier one, and leaves to the next.

    Args:
        left: `left` of the earlier load; empty: there was none.
        settings: of this load.
    """

    def __init__(self, left: Mapping[str, Any], settings: Settings) -> None:
        self._settings, self._context = settings, _context(settings)
        self._files: dict[str, KnownFile] = {}
        self._found: dict[int, KnownRow] = {}
        if left.get("context") == self._context:
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # damaged: nothing is known
                self._files = {name: _file(content) for name, content in left["files"].items()}
        self._by_key = {row.key: row for file in self._files.values() for row in file.rows}

    def rows_of(self, name: str, digest: str) -> tuple[KnownRow, ...] | None:
        """All rows of a file with this digest; null where they are not known."""
        known = self._files.get(name)
        return None if known is None or known.digest != digest else known.rows

    def assess(self, row: Row, keys: Keys) -> TableSpec | tuple[Problem, ...]:
        """`rows.assess`, or what is known of it."""
        entry = _digest_of_entry(keys.of(row.table, row.identity))
        known = self._by_key.get(row.key)
        spec = None if known is None or known.entry != entry else _restored(known)
        if spec is not None and known is not None:
            self._found[id(row)] = known
            return spec
        outcome = assess(row, keys, self._settings.tiers, self._settings.sources)
        if isinstance(outcome, TableSpec) and outcome.dialect in DIALECTS.built_in and row.identity is not None:
            kept = KnownRow(row.key, entry, str(row.table), *row.identity, kept_compact(outcome))
            self._found[id(row)] = kept
        return outcome

    def left(self, files: Iterable[TableFile]) -> Mapping[str, Any]:
        """What the next load may know of the files of this one, whose rows are assessed: values for JSON."""
        found: dict[str, KnownFile] = {}
        for file in files:
            rows = tuple(self._found[id(row)] for row in file.rows if id(row) in self._found)
            is_whole = len(rows) == len(file.rows) and not file.problems
            if rows:
                found[file.name] = KnownFile(file.digest if is_whole else "", rows)
        return {"context": self._context, "files": found}


def _file(content: tuple[str, Iterable[Iterable[Any]]]) -> KnownFile:
    digest, rows = content
    return KnownFile(digest, tuple(map(KnownRow._make, rows)))


def _restored(known: KnownRow) -> TableSpec | None:
    try:
        return restored(TableSpec, known.spec)
    except GddlError:
        return None


def _digest_of_entry(entry: KeysEntry | None) -> str:
    return "" if entry is None else digest_of(repr((entry.table, entry.keys, entry.rival, entry.tables)))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _context(settings: Settings) -> str:
    """Digest of what specifications are made of beside rows, their files and keys: what `assess` is given, and code."""
    sources = {name: (dict(one.layer.values), one.landing) for name, one in sorted(settings.sources.items())}
    versions = [__version__, str(CONTRACT_VERSION), *map(_version, _USED)]
    return digest_of(*versions, repr(sorted(settings.tiers)), repr(dict(settings.defaults.values)), repr(sources))
