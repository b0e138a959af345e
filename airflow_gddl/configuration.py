"""Airflow's configuration section `[gddl]` and the compiled metadata."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.contract import python_command
from airflow_gddl.contract.codes import METADATA_UNREACHABLE
from airflow_gddl.contract.errors import MetadataError, RetriableError, invalid_option
from airflow_gddl.provider import DEFAULTS
from airflow_gddl.runtime.compiled.cache import CompiledSettings, places
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from airflow_gddl.version_compat import conf

if TYPE_CHECKING:
    from airflow_gddl.runtime.compiled.documents import Directory, PipelineDocument
    from airflow_gddl.runtime.landing.events_queue import Following

SECTION = "gddl"


def text(option: str) -> str:
    return str(conf.get(SECTION, option, fallback=DEFAULTS[option]) or "").strip()


def number(option: str) -> float:
    """
    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    try:
        return float(text(option))
    except ValueError as error:
        raise _wrong(option, "not a number", f"write e.g. {DEFAULTS[option]}") from error


def is_on(option: str) -> bool:
    return text(option).lower() in ("true", "1", "yes", "on", "t", "y")


def job_command() -> tuple[str, ...]:
    """Program and first arguments of the embedded job.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    return python_command.job_command(text("job_command"))


def metadata_place(given: str | Path | None = None, beside: str | Path | None = None) -> str:
    """Location of the metadata: as given, as configured, or a folder `metadata` next to a DAG file or its folder."""
    chosen = str(given or text("metadata") or os.environ.get("GDDL_METADATA", ""))
    if not chosen:
        near = Path(beside).resolve().parent if beside else Path.cwd()
        folders = (place for place in (near / "metadata", near.parent / "metadata") if place.is_dir())
        chosen = str(next(folders, near / "metadata"))
    return chosen.rstrip("/") if "://" in chosen else str(Path(chosen).absolute())


def airflow_address() -> str:
    """Address of Airflow's UI, without a slash at its end; empty where it is not configured."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def dags_folder() -> str:
    return str(conf.get("core", "dags_folder"))


def own_metadata_place(given: str | None = None) -> str:
    """`metadata_place` for what no DAG file builds: as if one lay in Airflow's DAGs folder itself."""
    return metadata_place(given, f"{dags_folder()}/gddl.py")


def is_deferrable() -> bool:
    """Whether tasks wait in the triggerer; else in their own process.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    given = text("deferrable").lower()
    if given not in {"true", "false"}:
        raise _wrong("deferrable", "neither True nor False", "write True or False")
    return given == "true"


_LIMIT = 60.0
_PARSE_LIMIT = 5.0


def parse_seconds() -> float:
    """Seconds that all reads of a parse may take together: a sixth of the time that Airflow gives to a DAG file."""
    seconds = float(conf.get("core", "dagbag_import_timeout", fallback=0) or 0)
    return seconds / 6 if seconds > 0 else _PARSE_LIMIT


def compiled_metadata(metadata: str, *, parsing: bool = False) -> CompiledMetadata:
    """The compiled metadata that is current.

    Args:
        parsing: called by a DAG file, see `parse_seconds`.

    Raises:
        FatalError: `CACHE_UNUSABLE`.
    """
    return CompiledMetadata.current(
        CompiledSettings(
            metadata=metadata,
            cache=_cache_folder(),
            environ=environ_for(metadata),
            clock=time.time,
            refresh_seconds=number("refresh_seconds"),
            time_limit=parse_seconds() if parsing else _LIMIT,
            lake_environ=lambda lake, connection: environ_for(lake, aws_conn_id=connection),
        )
    )


def directory_of(metadata: str) -> Directory:
    """A short row for every table, by the metadata that is current.

    Raises:
        RetriableError: `METADATA_UNREACHABLE`.
        FatalError: `CACHE_UNUSABLE`.
    """
    compiled = compiled_metadata(metadata)
    directory = compiled.directory()
    if directory is None:
        why = compiled.state.why or "it has no tables"
        raise RetriableError(METADATA_UNREACHABLE, why, where=metadata, remedy="see the import errors")
    return directory


def other_places(configured: str) -> list[str]:
    """Metadata folders named by DAG files on this machine in addition to the configured one."""
    return [place for place in places(_cache_folder()) if place != configured]


def _cache_folder() -> Path:
    home = os.path.expanduser(os.environ.get("AIRFLOW_HOME", "~/airflow"))  # noqa: PTH111 - it leaves ~ where a user has no home, as Airflow and boto3 do
    return Path(text("cache_dir") or Path(home, "gddl"))


def following(environ: Mapping[str, str]) -> Following | None:
    """Queue of file notifications; None: landing folders are listed.

    Args:
        environ: environment for queue and stores.
    """
    url = text("events_queue")
    if not url:
        return None
    from airflow_gddl.runtime.landing.events_queue import Following, SqsQueue  # noqa: PLC0415 - imported when needed

    return Following(queue=SqsQueue(url, environ), environ=environ)


def environ_for(*places: str, aws_conn_id: str = "") -> Mapping[str, str]:
    """Environment for access to these paths: this process's environment, and a connection for S3.

    Args:
        aws_conn_id: empty: the configured one, if any.
    """
    chosen = aws_conn_id or text("aws_conn_id")
    if not chosen:
        return os.environ
    from airflow_gddl.contract.s3 import is_s3  # noqa: PLC0415 - imported when needed
    from airflow_gddl.hooks.aws import ConnectedEnviron, fetch  # noqa: PLC0415 - as above

    if not any(is_s3(place) for place in places):
        return os.environ
    return ConnectedEnviron(lambda: fetch(chosen))


def environ_of(document: PipelineDocument | Directory) -> Mapping[str, str]:
    """`environ_for` the roots of a pipeline or of all tables, with credentials of the pipeline's sources and
    catalogs."""
    from airflow_gddl.hooks.aws import ConnectedEnviron, fetch_named, fetch_sources  # noqa: PLC0415 - when needed
    from airflow_gddl.runtime.compiled.documents import PipelineDocument  # noqa: PLC0415 - as above

    roots = document.roots
    specs = document.specs if isinstance(document, PipelineDocument) else ()
    landings = [root for spec in specs for root in (spec.landing, *spec.shard_landings.values()) if root]
    environ = environ_for(roots.landing, roots.lake, *landings, aws_conn_id=document.aws_conn_id or "")
    access = document.access if isinstance(document, PipelineDocument) else ()
    catalogs = document.catalogs.values() if isinstance(document, PipelineDocument) else ()
    names = {one.connection for one in catalogs if one.connection is not None}
    if not access and not names:
        return environ
    return ConnectedEnviron(lambda: {**fetch_sources(access), **fetch_named(names)}, environ)


def _wrong(option: str, what: str, remedy: str) -> MetadataError:
    where = f"[{SECTION}] {option}"
    return invalid_option(f"{what}: {text(option)!r:.80}", remedy, where)
