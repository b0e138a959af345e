"""`gddl check`: checks of each part of a deployment, independent of the others."""

from __future__ import annotations

import http.client
import importlib
import logging
import os
import platform
import re
import secrets
import socket
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote, urlsplit

import typer

from airflow_gddl import __version__
from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import Cell, counted
from airflow_gddl.cli.source_database import SourceDatabase
from airflow_gddl.contract import packages
from airflow_gddl.contract.codes import (
    AIRFLOW_TOO_OLD,
    CATALOG_DENIED,
    CATALOG_UNREACHABLE,
    ROOT_UNUSABLE,
    SOURCE_REFUSED,
    SOURCE_UNREACHABLE,
)
from airflow_gddl.contract.connections import MASK_KEY, MASK_KEY_FILE, mask_key
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError, documented
from airflow_gddl.contract.extensions import (
    CATALOGS,
    DIALECTS,
    CatalogKind,
    CatalogSpec,
    ExtensionPoint,
    ProbeSkippedError,
    code_of_glue,
    code_of_status,
    entry_name,
    token_of,
)
from airflow_gddl.contract.iceberg_rest import code_of_rest, open_rest
from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.contract.packages import needed_by, package_of, room
from airflow_gddl.contract.postgresql_log import Finding
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.source_access import announced
from airflow_gddl.contract.sources import reads_of, used_by
from airflow_gddl.contract.sources.capture import capture_of
from airflow_gddl.contract.sources.kafka import SERVERS, client_settings, settings_of, topic_of
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.contract.unity_rest import answer_of
from airflow_gddl.runners.descriptor import RUNNERS, RunnerCheck, make_platform
from airflow_gddl.runners.interface import FromEnvironment
from airflow_gddl.stores import open_store

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

_CONTENT = b"gddl check"
_METASTORE_PORT = 9083


def probe_landing(root: str, environ: Mapping[str, str], *, by_jobs: bool = False) -> str:
    """List the landing root; return the finding.

    Args:
        by_jobs: whether jobs write all files of the root; a local one is then made by a run.

    Raises:
        FatalError: `ROOT_UNUSABLE`, `STORAGE_DENIED`, `S3_…`.
        RetriableError: `S3_UNREACHABLE`.
    """
    if not is_s3(root):
        if by_jobs and not Path(root).exists():
            _require_room(root)
            return f"{root} does not exist; a run creates it, since jobs write all of its files"
        _require_folder(root, "landing")
        if not os.access(root, os.R_OK | os.X_OK):
            raise _unusable(f"this user can't read {root}", "give the user permission to read it")
    first = next(iter(open_store(environ).list(root)), None)
    return f"{root} can be listed" + ("" if first else "; there are no files yet")


def probe_lake(root: str, environ: Mapping[str, str], name: str) -> str:
    """Write, read and remove a file; a missing local lake is not created.

    Args:
        name: of the file; unique.

    Raises:
        FatalError: `ROOT_UNUSABLE`, `STORAGE_DENIED`, `S3_…`.
        RetriableError: `S3_UNREACHABLE`.
    """
    if is_s3(root):
        store, path = open_store(environ), join(root, "_gddl", "check", name)
        store.create(path, _CONTENT)
        try:
            store.read(path)
        finally:
            store.delete(path)
        return f"{root} can be written, read and cleaned"
    if not Path(root).exists():
        _require_room(root)
        return f"{root} does not exist yet; the first run can create it"
    _require_folder(root, "lake")
    try:
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(_CONTENT)
    except OSError as error:
        raise _unusable(f"can't write to {root}: {error.strerror}", f"check permissions and space of {root}") from error
    return f"{root} can be written"


def _require_room(root: str) -> None:
    """A folder can be made where the root is missing: permissions alone do not tell, e.g. of a file or of `/proc`."""
    parent = next(folder for folder in Path(root).parents if folder.exists())
    try:
        with tempfile.TemporaryDirectory(dir=parent):
            return
    except OSError as error:
        what = f"{root} does not exist and can't be created: can't make a folder in {parent}: {error.strerror}"
        remedy = f"give the user permission to write to {parent}, or correct `lake` in gddl.yaml"
        raise _unusable(what, remedy) from error


def _require_folder(root: str, field: str) -> None:
    if not Path(root).is_dir():
        raise _unusable(f"there is no folder {root}", f"create it, or correct `{field}` in gddl.yaml")


def _unusable(what: str, remedy: str) -> FatalError:
    return FatalError(ROOT_UNUSABLE, what, remedy=remedy)


def probe_catalog(spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> str:
    """Make one request to a catalog, which changes nothing; return the finding.

    Args:
        database: one that a row's table has in this catalog, which need not exist.
        environ: where the token is found by its name.

    Raises:
        GddlError: `CATALOG_UNREACHABLE`, `CATALOG_DENIED` or `CATALOG_REFUSED`.
        ProbeSkippedError: it can't be tried from here.
    """
    return _PROBES[spec.kind](spec, database, environ)


def _probe_unity(spec: CatalogSpec, _database: str, environ: Mapping[str, str]) -> str:
    server, name = urlsplit(spec.url or "").netloc, spec.catalog_name or ""
    token = token_of(spec, environ)
    if token is None:
        raise _unreachable(f"{spec.token_env} holds no token", f"set {spec.token_env} where jobs run")
    try:
        status, _ = answer_of(spec, token, "GET", f"/catalogs/{quote(name, safe='')}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _silent(server, error, "url") from error
    if status >= 300:
        raise _refusal(status, server, name)
    return f"{server} has the catalog {name}"


def _refusal(status: int, server: str, name: str) -> GddlError:
    what = f"Unity Catalog at {server} answers {status} for the catalog {name!r}"
    code = code_of_status(status)
    if code == CATALOG_UNREACHABLE:
        return _unreachable(what, "try again later, or see the server's log")
    denied = f"grant USE CATALOG to the token's user, or correct the token; see {documented('catalogs.md')}"
    refused = "create the catalog, or correct `url` and `catalog_name`"
    return FatalError(code, what, remedy=denied if code == CATALOG_DENIED else refused)


def _aws_keys(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Keys of an environment as boto3's session takes them; None where it has none: boto3 then finds its own."""
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    return {name: environ.get(name.upper()) or None for name in names}


def _probe_glue(spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> str:
    with needed_by(f"the catalog kind {spec.kind}", install="airflow-gddl[glue]"):
        import boto3  # noqa: PLC0415 - an extra that only this catalog needs
        from botocore.config import Config  # noqa: PLC0415 - as above
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above
    wait = seconds(spec.timeout)
    config = Config(connect_timeout=wait, read_timeout=wait, retries={"total_max_attempts": 1})
    account = {} if spec.catalog_id is None else {"CatalogId": spec.catalog_id}
    try:
        session = boto3.Session(**_aws_keys(environ))
        client = session.client("glue", region_name=spec.region, endpoint_url=spec.endpoint, config=config)
        client.get_database(Name=database, **account)
    except ClientError as error:
        answer, what = str(error.response.get("Error", {}).get("Code", "")), f"Glue: {error}"[:400]
        if answer == "EntityNotFoundException":
            return f"Glue answers; it has no database {database} yet"
        code, remedy = code_of_glue(answer, what), "check credentials, region and endpoint"
        if code == CATALOG_UNREACHABLE:
            raise _unreachable(what, remedy) from error
        remedy = "grant glue:GetDatabase" if code == CATALOG_DENIED else remedy
        raise FatalError(code, what, remedy=remedy) from error
    except (BotoCoreError, ValueError) as error:
        raise _unreachable(f"Glue: {error}"[:400], "check credentials, region and endpoint") from error
    return f"Glue answers; it has the database {database}"


def _probe_iceberg_rest(spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> str:
    """Ask for the namespace, and whether tables in it may be committed to: of one that is not there."""
    server = urlsplit(spec.uri or "").netloc
    try:
        errors, catalog = importlib.import_module("pyiceberg.exceptions"), open_rest(spec, environ)
        has_namespace = catalog.namespace_exists((database,))
        absent = SimpleNamespace(name=lambda: (database, f"gddl_check_{secrets.token_hex(6)}"), config={})
        try:
            catalog.commit_table(absent, (), ())
        except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
            pass
        except errors.RESTError as error:
            if "NoSuch" not in str(error):
                raise
    except ImportError as error:
        raise ProbeSkippedError("airflow-gddl[iceberg] is not installed here; jobs need it") from error
    except GddlError:
        raise
    except Exception as error:
        code, what = code_of_rest(error), f"{server}: {type(error).__name__}: {error}"[:400]
        if code == CATALOG_UNREACHABLE:
            raise _silent(server, error, "uri") from error
        remedy = f"grant it to the connection's user, or correct its credentials; see {documented('catalogs.md')}"
        refused = "correct `uri` and `warehouse` of the catalog"
        raise FatalError(code, what, remedy=remedy if code == CATALOG_DENIED else refused) from error
    return f"{server} answers, and takes commits; it has {'the' if has_namespace else 'no'} namespace {database}" + (
        "" if has_namespace else " yet"
    )


def _probe_hive(spec: CatalogSpec, _database: str, _environ: Mapping[str, str]) -> str:
    if spec.uri is None:
        raise ProbeSkippedError("Spark's configuration names the metastore; try `gddl catalog diff`")
    parts = urlsplit(spec.uri or "")
    server = f"{parts.hostname}:{parts.port or _METASTORE_PORT}"
    try:
        with socket.create_connection(
            (parts.hostname or "", parts.port or _METASTORE_PORT), timeout=seconds(spec.timeout)
        ):
            return f"{server} accepts connections"
    except OSError as error:
        raise _silent(server, error, "uri") from error


_PROBES: Mapping[CatalogKind, Callable[[CatalogSpec, str, Mapping[str, str]], str]] = {
    "hive": _probe_hive,
    "glue": _probe_glue,
    "unity": _probe_unity,
    "iceberg_rest": _probe_iceberg_rest,
    "iceberg_glue": _probe_glue,
}


def _silent(server: str, error: Exception, field: str) -> GddlError:
    reason = str(error) or type(error).__name__
    return _unreachable(f"{server} does not answer: {reason}", f"start it, or correct `{field}` of the catalog")


def _unreachable(what: str, remedy: str) -> GddlError:
    return RetriableError(CATALOG_UNREACHABLE, what, remedy=remedy)


OLDEST_AIRFLOW = (3, 0, 6)
_STYLES = {"ok": "green", "failed": "bold red", "warning": "yellow", "skipped": "dim"}
_PLATFORM = "airflow_gddl.tools.platform_check.command"
"""The room of `--platform`."""


@dataclass(frozen=True)
class Checked:
    """Result of one check.

    Attributes:
        subject: e.g. `lake`, `Java`, `connection GDDL_SOURCE_SHOP`.
        status: `warning`: it works, and less well than it could; `skipped`: it can't be checked, or is not needed.
        message: the finding; of a failed check, and of a warning, `[CODE] what (where). Remedy: …`
    """

    subject: str
    status: Literal["ok", "failed", "warning", "skipped"]
    message: str


_PlatformFlag = Annotated[
    bool, typer.Option("--platform", help="Try store, jobs and tables in a folder of its own, and remove it.")
]
_Minutes = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.1, max=1440, help="Time limit of --platform. Default: 30."),
]
_Report = Annotated[str, typer.Option(metavar="FILE", help="Where --platform writes results, without names.")]


def check(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    platform_: _PlatformFlag = False,
    minutes: _Minutes = None,
    report: _Report = "",
) -> None:
    """Try every connection, folder, permission and version; exit status 1 when something is wrong."""
    cli = context.of(ctx)
    if platform_:
        raise typer.Exit(_on_platform(cli, metadata, minutes=minutes, file=report, as_json=json))
    options.require_beside("--platform", {"--minutes": minutes, "--report": report})
    failed = 0
    for checked in check_all(cli, metadata):
        failed += checked.status == "failed"
        if json:
            cli.screen.record(checked)
        else:
            status = Cell(f"{checked.status:<8}", _STYLES[checked.status])
            cli.screen.spans([status, Cell(f"{checked.subject}: {checked.message}")])
    if not json:
        style = "bold red" if failed else "green"
        cli.screen.say(f"{counted(failed, 'problem')} found" if failed else "everything works", style)
    raise typer.Exit(context.FAILED if failed else context.OK)


def _on_platform(cli: CliContext, metadata: str, **options: Any) -> int:
    """Exit status of `--platform`.

    Raises:
        FatalError: `COMMAND_MISSING`: its room was deleted.
    """
    status: int = room(_PLATFORM, "`gddl check --platform`").check_platform(cli, metadata, **options)
    return status


def check_all(cli: CliContext, folder: str) -> Iterator[Checked]:
    """Versions, extensions, metadata, roots, runner, sources, logs, packages, topics and catalogs, in this order.

    With unreadable metadata, later checks are skipped.
    """
    yield Checked("airflow-gddl", "ok", f"{__version__}, Python {platform.python_version()}")
    yield _airflow()
    yield from _extensions()
    try:
        loaded = metadata_folder.read(cli, folder)
    except GddlError as error:
        yield Checked("metadata", "failed", str(error))
        return
    yield _rows(loaded)
    for subject, root in _landings_of(loaded):
        environ, by_jobs = announced(loaded.access, cli.environ), _is_written_by_jobs(loaded, root)
        yield _tried(subject, partial(probe_landing, root, environ, by_jobs=by_jobs))
    yield _tried("lake", lambda: probe_lake(loaded.roots.lake, cli.environ, cli.new_id()))
    yield from _runner(cli, loaded)
    if any("hmac" in spec.mask.values() for spec in loaded.tables):
        yield _mask_key(cli, loaded)
    names = {str(spec.options["verify_connection"]) for spec in loaded.tables if spec.options.get("verify_connection")}
    for name in sorted(names):
        yield _tried(f"connection {name}", SourceDatabase(name, cli.environ).connect_once)
    yield from _logs(cli, loaded)
    yield from _packages(cli, loaded)
    yield from _topics(cli, loaded)
    for name in loaded.catalogs:
        yield _catalog(cli, loaded, name)


def _logs(cli: CliContext, loaded: LoadedMetadata) -> Iterator[Checked]:
    """A line for each log that jobs read, or for each of its findings."""
    logs: defaultdict[tuple[str, str], list[TableSpec]] = defaultdict(list)
    for spec in loaded.tables:
        if spec.enabled and capture_of(spec):
            logs[spec.source, str(spec.options.get("verify_connection"))].append(spec)
    for (source, connection), specs in logs.items():
        lacking: list[Finding] = []
        checked = _tried(f"log of {source}", partial(_log, SourceDatabase(connection, cli.environ), specs, lacking))
        tables = [spec.name_in_source for spec in specs]
        for one in lacking:  # of a table without an enabled row it stops none
            status: Literal["failed", "warning"] = "failed" if one.concerns(tables) else "warning"
            yield Checked(checked.subject, status, f"{one.what}. Remedy: {one.statement}")
        if not any(one.concerns(tables) for one in lacking):
            yield checked


def _log(database: SourceDatabase, specs: Sequence[TableSpec], lacking: list[Finding]) -> str:
    findings, shown = database.log_findings(specs)
    lacking += findings
    return shown


def _mask_key(cli: CliContext, loaded: LoadedMetadata) -> Checked:
    """Jobs of a platform have a key of their own."""
    if RUNNERS.get(loaded.runner).remote and not {MASK_KEY, MASK_KEY_FILE} & set(cli.environ):
        where = f"jobs read {MASK_KEY} on {loaded.runner}, not on this machine"
        return Checked("mask key", "skipped", where)

    def tried() -> str:
        mask_key(cli.environ)
        return "found"

    return _tried("mask key", tried)


def _packages(cli: CliContext, loaded: LoadedMetadata) -> Iterator[Checked]:
    """Optional packages of jobs, a line for each that this deployment uses; jobs elsewhere, and those of a
    `job_command`, which is asked for them, have their own."""
    if RUNNERS.get(loaded.runner).remote or cli.job_command != JOB:
        return
    for module in _modules(cli, loaded):
        package, _ = package_of(module)
        yield _tried(f"package {package}", partial(probe_package, module))


def _modules(cli: CliContext, loaded: LoadedMetadata) -> list[str]:
    """Optional modules that jobs of this deployment import."""
    tables = [spec for spec in loaded.tables if spec.enabled]
    registers = any(CATALOGS[one.kind].is_iceberg for one in loaded.catalogs.values())
    used = {
        "pyiceberg": registers or any(spec.iceberg for spec in tables),
        **{module: True for spec in tables for one in used_by(spec).values() for module in one.modules},
        "opentelemetry.sdk": bool(cli.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")),
    }
    return [module for module, is_used in used.items() if is_used]


def probe_package(module: str) -> str:
    """
    Raises:
        FatalError: `PACKAGE_MISSING`.
    """
    with needed_by("a job of these rows and settings"):
        importlib.import_module(module)
    return "is installed"


def _topics(cli: CliContext, loaded: LoadedMetadata) -> Iterator[Checked]:
    """A line for each cluster of brokers that tables are read from."""
    clusters: defaultdict[tuple[str, str], list[TableSpec]] = defaultdict(list)
    for spec in loaded.tables:
        if topic_of(spec):
            servers, connection = (
                str(spec.options.get(name) or "") for name in ("bootstrap_servers", "kafka_connection")
            )
            clusters[servers, connection].append(spec)
    for (servers, connection), specs in clusters.items():
        yield _tried(f"topics of {servers or connection}", partial(probe_topics, specs, cli.environ))


def probe_topics(specs: Sequence[TableSpec], environ: Mapping[str, str], seconds: float = 10.0) -> str:
    """Ask the brokers for the tables' topics within `seconds`; return the finding.

    Raises:
        ProbeSkippedError: the client is not installed here.
        FatalError: as `settings_of`; `SOURCE_REFUSED`: a setting is none of the client's.
        RetriableError: `SOURCE_UNREACHABLE`.
    """
    settings = client_settings(settings_of(specs[0], environ))
    try:
        admin = importlib.import_module("confluent_kafka.admin")
        faults = importlib.import_module("confluent_kafka").KafkaException
    except ImportError as error:
        raise ProbeSkippedError("airflow-gddl[kafka] is not installed here; jobs need it") from error
    quiet = logging.getLogger(f"{__name__}.kafka")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    where = settings.get(SERVERS, "")
    try:
        client = admin.AdminClient(settings, logger=quiet)
    except (faults, TypeError, ValueError):  # its text may hold a secret
        what, remedy = "Kafka's client refuses the settings of kafka_connection", "correct their names"
        raise FatalError(SOURCE_REFUSED, what, where=where, remedy=remedy) from None
    try:
        there = client.list_topics(timeout=seconds).topics
    except faults as error:
        what, remedy = (
            f"the brokers can't be asked: {error.args[0].str()}",
            "check bootstrap_servers and kafka_connection",
        )
        raise RetriableError(SOURCE_UNREACHABLE, what, where=where, remedy=remedy) from error
    missing = sorted({topic_of(spec) for spec in specs} - set(there))
    names = f"; none yet: {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}" if missing else ""
    return f"{counted(len(specs) - len(missing), 'topic')} found{names}"


def _catalog(cli: CliContext, loaded: LoadedMetadata, name: str) -> Checked:
    subject, spec = f"catalog {name}", loaded.catalogs[name]
    if RUNNERS.get(loaded.runner).remote:
        skipped = f"jobs reach it from {loaded.runner}, not this machine; try `gddl catalog diff`"
        return Checked(subject, "skipped", skipped)
    databases = [entry_name(spec, table).database for table in loaded.tables if table.catalog == name]
    return _tried(subject, lambda: probe_catalog(spec, next(iter(databases), "default"), cli.environ))


def _landings_of(loaded: LoadedMetadata) -> Iterator[tuple[str, str]]:
    """The common landing root, where a table or nothing else uses one, and those of sources."""
    names_by_root = {root: name for name, root in reversed(list(loaded.landings.items()))}
    if loaded.roots.landing not in names_by_root and (
        not names_by_root or any(spec.landing is None and not spec.shards for spec in loaded.tables)
    ):
        yield "landing", loaded.roots.landing
    for root, name in reversed(list(names_by_root.items())):
        yield ("landing" if root == loaded.roots.landing else f"landing of {name}"), root


def _is_written_by_jobs(loaded: LoadedMetadata, root: str) -> bool:
    """Whether jobs read the changes of all tables below a landing root themselves."""
    below = [spec for spec in loaded.tables if any(f.root == root for f in LandingFolder.all_of(loaded.roots, spec))]
    return bool(below) and all(map(reads_of, below))


def _tried(subject: str, probe: Callable[[], str]) -> Checked:
    try:
        return Checked(subject, "ok", probe())
    except ProbeSkippedError as skipped:
        return Checked(subject, "skipped", str(skipped))
    except GddlError as error:
        return Checked(subject, "failed", str(error))


def _rows(loaded: LoadedMetadata) -> Checked:
    if loaded.problems:
        problems = f"{counted(len(loaded.problems), 'problem')} in the metadata. Remedy: see `gddl validate`"
        return Checked("metadata", "failed", problems)
    enabled = sum(spec.enabled for spec in loaded.tables)
    return Checked("metadata", "ok", f"{counted(enabled, 'enabled table')}")


def _airflow() -> Checked:
    version = packages.installed_version("apache-airflow")
    if version is None:
        return Checked("Airflow", "skipped", "not installed here; commands work without it")
    return _tried("Airflow", lambda: _supported(version))


def _supported(airflow: str) -> str:
    if tuple(int(part) for part in re.findall(r"\d+", airflow)[:3]) < OLDEST_AIRFLOW:
        remedy = f"install Airflow {'.'.join(map(str, OLDEST_AIRFLOW))} or newer"
        raise FatalError(AIRFLOW_TOO_OLD, f"Airflow {airflow} is not supported", remedy=remedy)
    return airflow


def _extensions() -> Iterator[Checked]:
    """What installed packages add, each loaded once."""
    for extensions in (DIALECTS, RUNNERS):
        for name, point in sorted(extensions.installed().items()):
            package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
            yield _tried(f"installed {extensions.what} {name}", partial(_loaded, extensions, name, package))


def _loaded(extensions: ExtensionPoint[Any], name: str, package: str) -> str:
    extensions.get(name)
    return f"from {package}"


def _runner(cli: CliContext, loaded: LoadedMetadata) -> Iterator[Checked]:
    name = loaded.runner
    descriptor, settings = RUNNERS.get(name), loaded.runners.get(name, {})
    if descriptor.remote:
        yield _tried(f"runner {name}", lambda: _platform(name, settings, cli.environ))
    if descriptor.check:
        given = RunnerCheck(
            name=name,
            declared=settings,
            roots=loaded.roots,
            tiers=_tiers_in_use(loaded),
            environ=cli.environ,
            command=cli.job_command,
            modules=tuple(_modules(cli, loaded)),
            reads_log=any(spec.enabled and reads_of(spec) == "log" for spec in loaded.tables),
        )
        yield from (_tried(subject, probe) for subject, probe in RUNNERS.load(descriptor.check)(given))


def _tiers_in_use(loaded: LoadedMetadata) -> dict[str, TierSpec]:
    """Tiers of enabled rows, by name; with `commit: merge` where one of its rows has it."""
    tiers: dict[str, TierSpec] = {}
    for spec in loaded.tables:
        if spec.enabled and tiers.get(spec.size, TierSpec()).commit == "direct":
            tiers[spec.size] = loaded.tiers[spec.size].for_row(spec)
    return tiers


def _platform(name: str, settings: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    make_platform(name, settings, environ, FromEnvironment())
    return "its package and settings are complete"
