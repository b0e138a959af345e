"""Entries that a check makes in catalogs: by kind, what is there, and their removal, which drops nothing of others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.layout import join, same_place
from airflow_gddl.platform_check.checks import FoundError, NotTriedError
from airflow_gddl.platform_check.glue_entries import GlueEntries
from airflow_gddl.platform_check.hive_entries import HiveEntries
from airflow_gddl.platform_check.iceberg_entries import IcebergEntries
from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.platform_check.unity_entries import UnityEntries
from airflow_gddl.stores import Storage

_NAME = re.compile(r"gddl_check_[0-9a-f]{12}")
_NOTES = "catalogs"
"""Folder of the check with an object for each catalog in which it makes a database, named as the catalog."""


class Entries(Protocol):
    """Tables of one database of a catalog: of a schema, or of a namespace.

    Raises (every method):
        GddlError: `CATALOG_UNREACHABLE`, `CATALOG_DENIED` or `CATALOG_REFUSED`; `PACKAGE_MISSING`.
        NotTriedError: `registration`: this catalog can't be reached by what is here.
    """

    @property
    def by_hand(self) -> str:
        """How a person removes the database with its tables."""
        ...

    def tables(self) -> Mapping[str, str] | None:
        """Location by name; None where there is no such database."""
        ...

    def drop_table(self, name: str) -> None:
        """Drop an entry; its files stay. Not an error where there is none."""
        ...

    def drop_database(self) -> None:
        """Drop the database, which has no tables; not an error where there is none."""
        ...


ENTRIES: Mapping[str, Callable[[CatalogSpec, str, Mapping[str, str]], Entries]] = {
    "glue": GlueEntries,
    "hive": HiveEntries,
    "iceberg_glue": GlueEntries,
    "iceberg_rest": IcebergEntries,
    "unity": UnityEntries,
}
"""By kind of catalog: those whose entries can be removed again from here."""


def database_of(root: str, catalog: str) -> str:
    """Name of the database that the check in this folder makes in the catalog of this name."""
    return f"gddl_check_{hashlib.blake2b(f'{root} {catalog}'.encode(), digest_size=6).hexdigest()}"


def to_register(catalogs: Mapping[str, CatalogSpec]) -> dict[str, CatalogSpec]:
    """The first catalog of each kind, by name."""
    kinds: dict[str, str] = {}
    for name, spec in catalogs.items():
        kinds.setdefault(spec.kind, name)
    return {name: catalogs[name] for name in kinds.values()}


def entries_of(context: CheckContext, catalog: str) -> Entries:
    """
    Raises:
        NotTriedError: `registration`: nothing here knows catalogs of this kind.
    """
    spec = context.loaded.catalogs[catalog]
    if spec.kind not in ENTRIES:
        raise NotTriedError("registration", f"nothing here asks a catalog of the kind {spec.kind}")
    return ENTRIES[spec.kind](spec, database_of(context.place.root, catalog), context.cli.environ)


def by_hand_in(context: CheckContext, catalog: str) -> str:
    """Where the database of a check is, and the command that removes it where one is known.

    A name that the metadata do not have is not shown: whoever writes to the lake may have chosen it.
    """
    database = database_of(context.place.root, catalog)
    if catalog not in context.loaded.catalogs:
        return f"{database} in a catalog that the metadata name no more"
    try:
        return f"in the catalog {catalog} with {entries_of(context, catalog).by_hand}"
    except NotTriedError:
        return f"{database} in the catalog {catalog}"


def begin(context: CheckContext, catalog: str, *, is_remote: bool) -> Entries:
    """Note that a database is about to be made, which is not there yet.

    Args:
        is_remote: jobs reach the catalog from elsewhere, so that one that refuses this machine proves nothing.

    Raises:
        NotTriedError: `registration`, `no-package`, `not-from-here`.
        FoundError: the database is there, which is then another's.
        GddlError: as `Entries`.
    """
    entries, database = entries_of(context, catalog), database_of(context.place.root, catalog)
    try:
        held = entries.tables()
    except GddlError as error:
        if isinstance(error, FatalError) and error.code == "PACKAGE_MISSING":
            raise NotTriedError("no-package", f"{error.what}; {error.remedy}") from error
        if is_remote:
            raise NotTriedError("not-from-here", str(error)) from error
        raise
    if held is not None:
        raise FoundError(f"the database {database} is there, and was not made by this check")
    context.store.create(_note(context.place.root, catalog), b"")
    return entries


def noted(store: Storage, root: str) -> list[str]:
    """Names of the catalogs in which the check in this folder made, or was about to make, a database."""
    return [found.name for found in store.list(join(root, _NOTES))]


def remove_entries(context: CheckContext) -> list[str]:
    """Remove the databases that this check made; return what is left."""
    try:
        catalogs = noted(context.store, context.place.root)
    except Exception as error:  # noqa: BLE001 - a removal of the folder that succeeds later takes the notes with it
        hands = [by_hand_in(context, name) for name in to_register(context.loaded.catalogs)]
        why = f"whether databases in catalogs are left is not known: {str(error).rstrip('.')}"
        return [f"{why}. Remove them {', and '.join(hands)}"] if hands else []
    return [left for catalog in catalogs if (left := _removed(context, catalog))]


def _removed(context: CheckContext, catalog: str) -> str:
    """Empty, or what is left of the database in a catalog."""
    root, hand = context.place.root, ""
    database = database_of(root, catalog)
    try:
        entries = entries_of(context, catalog)
        hand = f". Remove it with {entries.by_hand}"
        foreign = _drop(entries, database, root)
    except Exception as error:  # noqa: BLE001 - whatever the catalog answers is what is left
        said = error.detail if isinstance(error, NotTriedError) else str(error)
        return f"the database {database} of the catalog {catalog} may be left: {said.rstrip('.')}{hand}"
    if foreign:
        return f"the database {database} of the catalog {catalog} is left: it has entries of others, {foreign}"
    context.store.delete(_note(root, catalog))
    return ""


def _drop(entries: Entries, database: str, root: str) -> str:
    """Drop the entries that point into the folder, then the database; return the names of other entries, which stay.

    Entries are listed again before the database is dropped, since Glue drops one with what was put into it meanwhile.
    """
    if not _NAME.fullmatch(database):
        raise ValueError(f"not a database of a check: {database!r}")
    held = entries.tables()
    if held is None:
        return ""
    foreign = [name for name, location in held.items() if not same_place(location).startswith(f"{same_place(root)}/")]
    for name in held:
        if name not in foreign:
            entries.drop_table(name)
    left = foreign or sorted(entries.tables() or ())
    if not left:
        entries.drop_database()
    return ", ".join(left)


def _note(root: str, catalog: str) -> str:
    return join(root, _NOTES, catalog)
