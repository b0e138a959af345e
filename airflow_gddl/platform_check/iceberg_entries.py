"""Entries of a namespace of an Iceberg REST catalog, by pyiceberg."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.iceberg_rest import code_of_rest, open_rest
from airflow_gddl.contract.packages import needed_by


class IcebergEntries:
    """See `catalog_entries.Entries`. Files of dropped tables stay: nothing asks the catalog to purge them."""

    def __init__(self, spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> None:
        self._spec, self._namespace, self._environ = spec, database, environ

    @property
    def by_hand(self) -> str:
        return f"`DROP TABLE` of each table of the namespace {self._namespace}, then `DROP NAMESPACE {self._namespace}`"

    def tables(self) -> Mapping[str, str] | None:
        with self._opened() as (catalog, _):
            if not catalog.namespace_exists((self._namespace,)):
                return None
            names = [name[-1] for name in catalog.list_tables((self._namespace,))]
            return {name: catalog.load_table((self._namespace, name)).metadata.location for name in names}

    def drop_table(self, name: str) -> None:
        with self._opened() as (catalog, errors):
            try:
                catalog.drop_table((self._namespace, name))
            except errors.NoSuchTableError:
                return

    def drop_database(self) -> None:
        with self._opened() as (catalog, errors):
            try:
                catalog.drop_namespace((self._namespace,))
            except errors.NoSuchNamespaceError:
                return

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """pyiceberg's catalog, and its errors."""
        with needed_by(f"the catalog kind {self._spec.kind}", install="airflow-gddl[iceberg]"):
            errors = importlib.import_module("pyiceberg.exceptions")
        try:
            yield open_rest(self._spec, self._environ, lambda: None), errors  # no file is read or written from here
        except (GddlError, ImportError):
            raise
        except Exception as error:
            code, what = code_of_rest(error), f"the Iceberg catalog: {type(error).__name__}: {error}"[:400]
            if code == "CATALOG_UNREACHABLE":
                raise RetriableError(code, what, remedy="check `uri` of the catalog") from error
            remedy = "let the connection's user create and drop namespaces and tables gddl_check_*"
            raise FatalError(code, what, remedy=remedy) from error
