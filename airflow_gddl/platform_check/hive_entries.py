"""Entries of a database of a Hive metastore, by its Thrift API: its client comes with pyiceberg."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from airflow_gddl.cli.check import METASTORE_PORT
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.platform_check.checks import NotTriedError

_DENIED = ("AccessControlException", "AuthorizationException", "Permission denied", "is not allowed")


class HiveEntries:
    """See `catalog_entries.Entries`. Kerberos is not spoken."""

    def __init__(self, spec: CatalogSpec, database: str, _environ: Mapping[str, str]) -> None:
        self._spec, self._database = spec, database

    @property
    def by_hand(self) -> str:
        return f"`DROP DATABASE {self._database} CASCADE`"

    def tables(self) -> Mapping[str, str] | None:
        with self._opened() as (client, types):
            try:
                client.get_database(self._database)
            except types.NoSuchObjectException:
                return None
            names = client.get_all_tables(self._database)
            return {name: _location(client.get_table(self._database, name)) for name in names}

    def drop_table(self, name: str) -> None:
        with self._opened() as (client, types), suppress(types.NoSuchObjectException):
            client.drop_table(self._database, name, deleteData=False)

    def drop_database(self) -> None:
        """With the folder that Spark made for it, which has its name."""
        with self._opened() as (client, types), suppress(types.NoSuchObjectException):
            folder = client.get_database(self._database).locationUri.rstrip("/").rpartition("/")[2]
            is_own = folder in (self._database, f"{self._database}.db")
            client.drop_database(self._database, deleteData=is_own, cascade=False)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """A client, and the types of its errors."""
        if self._spec.uri is None:
            raise NotTriedError("registration", "the catalog names no `uri`: only the jobs' Spark knows the metastore")
        with needed_by(f"the catalog kind {self._spec.kind}", install="pyiceberg[hive]"):
            thrift = importlib.import_module("thrift.transport.TTransport")
            errors = importlib.import_module("thrift.Thrift")
            sockets = importlib.import_module("thrift.transport.TSocket")
            protocols = importlib.import_module("thrift.protocol.TBinaryProtocol")
            metastore = importlib.import_module("hive_metastore.ThriftHiveMetastore")
            types = importlib.import_module("hive_metastore.ttypes")
        parts = urlsplit(self._spec.uri)
        socket = sockets.TSocket(parts.hostname or "", parts.port or METASTORE_PORT)
        socket.setTimeout(1000 * seconds(self._spec.timeout))
        try:
            transport = thrift.TBufferedTransport(socket)
            transport.open()
            with closing(transport):
                yield metastore.Client(protocols.TBinaryProtocol(transport)), types
        except thrift.TTransportException as error:
            if error.type == thrift.TTransportException.END_OF_FILE:
                why = "the metastore closes the connection, as one with Kerberos does, which this check does not speak"
                raise NotTriedError("registration", why) from error
            what = f"Hive metastore {parts.netloc}: {error.message}"[:400]
            raise RetriableError("CATALOG_UNREACHABLE", what, remedy="check `uri` of the catalog") from error
        except errors.TException as error:
            what = f"Hive metastore: {getattr(error, 'message', '') or error}"[:400]
            code = "CATALOG_DENIED" if any(sign in what for sign in _DENIED) else "CATALOG_REFUSED"
            remedy = "let the user of this process drop databases and tables gddl_check_*"
            raise FatalError(code, what, remedy=remedy) from error


def _location(table: Any) -> str:
    """Spark keeps the location of a table of its own format among the properties of its storage, if not beside them."""
    return str(table.sd.serdeInfo.parameters.get("path") or table.sd.location or "")
