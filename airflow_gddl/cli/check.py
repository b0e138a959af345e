"""`gddl check`: checks of each part of a deployment, independent of the others."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

import typer

from airflow_gddl import __version__
from airflow_gddl.cli import context, exits, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.probe_catalogs import probe_catalog
from airflow_gddl.cli.probes import probe_lake, probe_landing
from airflow_gddl.cli.screen import Cell
from airflow_gddl.cli.text import counted
from airflow_gddl.contract.catalogs import entry_name
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.source_access import announced
from airflow_gddl.contract.spark_versions import check_packages
from airflow_gddl.onboarding.database import Database
from airflow_gddl.runtime.runners.connections import FromEnvironment
from airflow_gddl.runtime.runners.java import find_java
from airflow_gddl.runtime.runners.registry import make_platform

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import Catalog

OLDEST_AIRFLOW = (3, 0, 6)
_JOB_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow")
_ON_THIS_MACHINE = ("local", "spark_submit")
_DEPLOYED = ("databricks", "glue")
_STYLES = {"ok": "green", "failed": "bold red", "skipped": "dim"}


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Result of one check.

    Attributes:
        subject: e.g. `lake`, `Java`, `connection GDDL_SOURCE_SHOP`.
        status: `skipped`: it can't be checked, or is not needed.
        message: the finding; of a failed check `[CODE] what (where). Remedy: …`
    """

    subject: str
    status: Literal["ok", "failed", "skipped"]
    message: str


def check(ctx: typer.Context, metadata: options.Metadata = "metadata", json: options.Json = False) -> None:
    """Try every connection, folder, permission and version; exit status 1 when something is wrong."""
    cli = context.of(ctx)
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
    raise typer.Exit(exits.FAILED if failed else exits.OK)


def check_all(cli: CliContext, folder: str) -> Iterator[Checked]:
    """Versions, metadata, roots, runner, source connections and catalogs, in this order.

    With unreadable metadata, later checks are skipped.
    """
    yield Checked(subject="airflow-gddl", status="ok", message=f"{__version__}, Python {platform.python_version()}")
    yield _airflow()
    try:
        catalog = metadata_folder.read(cli, folder)
    except GddlError as error:
        yield Checked(subject="metadata", status="failed", message=str(error))
        return
    yield _rows(catalog)
    for subject, root in _landings(catalog):
        yield _tried(subject, partial(probe_landing, root, announced(catalog.access, cli.environ)))
    yield _tried("lake", lambda: probe_lake(catalog.roots.lake, cli.environ, cli.new_id()))
    yield from _runner(cli, catalog)
    names = {str(spec.options["verify_connection"]) for spec in catalog.tables if spec.options.get("verify_connection")}
    for name in sorted(names):
        yield _tried(f"connection {name}", Database(name, cli.environ).connect_once)
    for name in catalog.catalogs:
        yield _catalog(cli, catalog, name)


def _catalog(cli: CliContext, catalog: Catalog, name: str) -> Checked:
    subject, spec = f"catalog {name}", catalog.catalogs[name]
    skipped = ""
    if catalog.runner not in _ON_THIS_MACHINE:
        skipped = f"jobs reach it from {catalog.runner}, not this machine; try `gddl catalog diff`"
    elif spec.kind == "hive" and spec.uri is None:
        skipped = "Spark's configuration names the metastore; try `gddl catalog diff`"
    if skipped:
        return Checked(subject=subject, status="skipped", message=skipped)
    databases = [entry_name(spec, table).database for table in catalog.tables if table.catalog == name]
    return _tried(subject, lambda: probe_catalog(spec, next(iter(databases), "default"), cli.environ))


def _landings(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """The common landing root, where a table or nothing else uses one, and those of sources."""
    own = {root: name for name, root in reversed(list(catalog.landings.items()))}
    if catalog.roots.landing not in own and (
        not own or any(spec.landing is None and not spec.shards for spec in catalog.tables)
    ):
        yield "landing", catalog.roots.landing
    for root, name in reversed(list(own.items())):
        yield ("landing" if root == catalog.roots.landing else f"landing of {name}"), root


def _tried(subject: str, probe: Callable[[], str]) -> Checked:
    try:
        return Checked(subject=subject, status="ok", message=probe())
    except GddlError as error:
        return Checked(subject=subject, status="failed", message=str(error))


def _rows(catalog: Catalog) -> Checked:
    if catalog.problems:
        problems = f"{counted(len(catalog.problems), 'problem')} in the metadata. Remedy: see `gddl validate`"
        return Checked(subject="metadata", status="failed", message=problems)
    enabled = sum(spec.enabled for spec in catalog.tables)
    return Checked(subject="metadata", status="ok", message=f"{counted(enabled, 'enabled table')}")


def _airflow() -> Checked:
    found = _version("apache-airflow")
    if found is None:
        return Checked(subject="Airflow", status="skipped", message="not installed here; commands work without it")
    return _tried("Airflow", lambda: _supported(found))


def _supported(airflow: str) -> str:
    if tuple(int(part) for part in re.findall(r"\d+", airflow)[:3]) < OLDEST_AIRFLOW:
        remedy = f"install Airflow {'.'.join(map(str, OLDEST_AIRFLOW))} or newer"
        raise FatalError("AIRFLOW_TOO_OLD", f"Airflow {airflow} is not supported", remedy=remedy)
    return airflow


def _runner(cli: CliContext, catalog: Catalog) -> Iterator[Checked]:
    subject = f"runner {catalog.runner}"
    if catalog.runner in _ON_THIS_MACHINE:
        yield _tried(subject, _job_packages)
        yield _java(cli, catalog)
        return
    yield _tried(subject, lambda: _platform(cli, catalog))


def _job_packages() -> str:
    versions = {name: _version(name) for name in _JOB_PACKAGES}
    missing = [name for name, found in versions.items() if found is None]
    if missing:
        what = f"jobs on this machine need {', '.join(missing)}"
        raise FatalError("JOB_PACKAGE_MISSING", what, remedy="pip install 'airflow-gddl[spark]'")
    found = {name: str(version) for name, version in versions.items()}
    check_packages(found["pyspark"], found["delta-spark"])
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _java(cli: CliContext, catalog: Catalog) -> Checked:
    tiers = [catalog.tiers[spec.size] for spec in catalog.tables if spec.enabled]
    if tiers and all(tier.engine == "delta_rs" and tier.spread == "processes" for tier in tiers):
        return Checked(subject="Java", status="skipped", message="no table's tier needs it")
    return _tried("Java", lambda: str(find_java(cli.environ)))


def _platform(cli: CliContext, catalog: Catalog) -> str:
    name = catalog.runner
    make_platform(name, catalog.runners.get(name, {}), cli.environ, FromEnvironment())
    login = f"; `gddl deploy {name} --dry-run` tries the login" if name in _DEPLOYED else ""
    return f"its package and settings are complete{login}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
