"""Catalogs of each kind for checks: servers of Hive and Iceberg, stand-ins of Glue and Unity."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock
from urllib.parse import unquote, urlsplit

import pytest

from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.simulate.table import read_replica
from tests.catalogs import hive_server, iceberg_server
from tests.catalogs.unity_server import UnityWorld, unity_server
from tests.platform_check import aws_services
from tests.platform_check.ground import Ground

KINDS = ("glue", "hive", "iceberg_glue", "iceberg_rest", "unity")
_AWS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True)
class Served:
    """A catalog that answers.

    Attributes:
        settings: of it in gddl.yaml.
        make: make a database of this name.
        intrude: put a table `mine` into a database, whose files are elsewhere.
        world: the stand-in, where it is one.
        environ: of checks and jobs.
    """

    settings: Mapping[str, Any]
    make: Callable[[str], object]
    intrude: Callable[[str], object]
    world: Any = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def ground(self, of: Ground) -> Ground:
        environ = {**of.environ, **self.environ}
        return replace(of, environ=environ, settings={**of.settings, "catalogs": {"main": dict(self.settings)}})


@contextmanager
def catalog(kind: str, ground: Ground) -> Iterator[Served]:
    with {"hive": _hive, "iceberg_rest": _iceberg, "unity": _unity}.get(kind, partial(_glue, kind))(ground) as served:
        yield served


@contextmanager
def _glue(kind: str, ground: Ground) -> Iterator[Served]:
    pytest.importorskip("boto3")
    with aws_services.serving(ground.environ) as services:

        def intrude(database: str) -> None:
            services.databases[database]["mine"] = {"Name": "mine", "StorageDescriptor": {"Location": "s3://b/mine"}}

        yield Served(
            settings={"kind": kind, "region": "us-east-1", "endpoint": services.url},
            make=lambda database: services.databases.setdefault(database, {}),
            intrude=intrude,
            world=services,
            environ={**_AWS, **ground.environ, "AWS_ENDPOINT_URL_ATHENA": services.url},
        )


@contextmanager
def _unity(_: Ground) -> Iterator[Served]:
    with unity_server() as world:
        mine = {"storage_location": "file:///mine", "name": "mine"}
        yield Served(
            settings={"kind": "unity", "url": world.url, "catalog_name": "lake"},
            make=lambda database: world.schemas.update({f"lake.{database}": {}}),
            intrude=lambda database: world.tables.update({f"lake.{database}.mine": mine}),
            world=world,
        )


@contextmanager
def _iceberg(ground: Ground) -> Iterator[Served]:
    rest, types = importlib.import_module("pyiceberg.catalog.rest"), importlib.import_module("pyiceberg.schema")
    if (jars := iceberg_server.find_jars()) is None:
        pytest.skip("no Java, or Maven Central can't be reached")
    with iceberg_server.serving(jars, ground.root / "rest") as uri:
        opened = rest.RestCatalog("test", uri=uri)
        yield Served(
            settings={"kind": "iceberg_rest", "uri": uri},
            make=lambda database: opened.create_namespace((database,)),
            intrude=lambda database: opened.create_table((database, "mine"), types.Schema()),
        )


@contextmanager
def _hive(ground: Ground) -> Iterator[Served]:
    with hive_server.serving(ground.root / "hive") as uri:
        yield Served(
            settings={"kind": "hive", "uri": uri},
            make=lambda database: in_hive(uri, "create_database", _database(database, ground.root / "made")),
            intrude=lambda database: in_hive(uri, "create_table", _table(database)),
        )


def in_hive(uri: str, call: str, *arguments: Any) -> Any:
    """Make one request to a metastore."""
    transports = importlib.import_module("thrift.transport.TTransport")
    sockets = importlib.import_module("thrift.transport.TSocket")
    protocols = importlib.import_module("thrift.protocol.TBinaryProtocol")
    metastore = importlib.import_module("hive_metastore.ThriftHiveMetastore")
    parts = urlsplit(uri)
    transport = transports.TBufferedTransport(sockets.TSocket(parts.hostname, parts.port))
    transport.open()
    with closing(transport):
        return getattr(metastore.Client(protocols.TBinaryProtocol(transport)), call)(*arguments)


def _database(name: str, folder: object) -> Any:
    return importlib.import_module("hive_metastore.ttypes").Database(name, "", f"file:{folder}", {})


def _table(database: str) -> Any:
    types = importlib.import_module("hive_metastore.ttypes")
    serde = types.SerDeInfo(name="", serializationLib="", parameters={})
    storage = types.StorageDescriptor(
        cols=[], location="file:/mine", inputFormat="", outputFormat="", numBuckets=0, serdeInfo=serde, bucketCols=[],
        sortCols=[], parameters={}
    )  # fmt: skip
    return types.Table(
        tableName="mine", dbName=database, owner="", sd=storage, partitionKeys=[], parameters={"EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE"
    )  # fmt: skip


@contextmanager
def warehouses(ground: Ground, **states: str) -> Iterator[tuple[Ground, Any]]:
    """A ground with a catalog of Unity, and warehouses of these states that read its tables."""
    from databricks.sdk.service.sql import State  # noqa: PLC0415 - of these tests alone

    from devtools.fake_databricks.sql import FakeSql  # noqa: PLC0415 - needs the SDK

    with catalog("unity", ground) as served:

        def read(*names: str) -> list[dict[str, Any]]:
            location = of_unity(served).tables[".".join(names)]["storage_location"]
            rows: list[dict[str, Any]] = read_replica(unquote(location.removeprefix("file://")), {}).to_pylist()
            return rows

        yield served.ground(ground), FakeSql(read, {name: State(state) for name, state in states.items()})


@contextmanager
def in_workspace(ground: Ground, **states: str) -> Iterator[tuple[CheckContext, Any]]:
    """A context with local jobs, and the warehouses of the workspace that the environment names."""
    from devtools.fake_databricks.server import serving  # noqa: PLC0415 - needs the SDK

    with warehouses(ground, **states) as (there, sql), serving(["false"]) as server:
        server.sql = sql
        login = {"DATABRICKS_HOST": server.workspace.url, "DATABRICKS_TOKEN": server.token}
        with mock.patch.dict(os.environ, login):
            yield replace(there, environ={**there.environ, **login}).context(), sql


def of_unity(served: Served) -> UnityWorld:
    assert isinstance(served.world, UnityWorld)
    return served.world
