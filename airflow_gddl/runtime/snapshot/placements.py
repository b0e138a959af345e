"""The placement of tables in DAGs, stored in the lake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from airflow_gddl.contract.codec import decode, to_json
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.metadata.topology import Pipeline, Placement
from airflow_gddl.metadata.topology.placement import Pack, RetiredPack, legal
from airflow_gddl.runtime.snapshot.documents import PlacementDocument
from airflow_gddl.stores import Storage, open_store

_SERVED_SECONDS = 7 * 86400.0
_EARLIER = "gddl_pack."
_ID = re.compile(r"gddl(_pack)?\.[A-Za-z0-9_.-]{1,250}")


def place_of(lake: str, prefix: str) -> str:
    """Path for metadata folders with this prefix, so that two of them can share one lake."""
    return join(lake, STATE, "airflow", "placement", f"{legal(prefix) if prefix else 'default'}.json")


def read(path: str, environ: Mapping[str, str]) -> tuple[Placement, str | None]:
    """The placement and its tag; an empty one and null where there is none yet.

    Raises:
        RetriableError: `PLACEMENT_DAMAGED`.
        GddlError: the store does not answer; see `Storage`.
    """
    try:
        data, tag = open_store(environ).read_tagged(path)
    except FileNotFoundError:
        return Placement(), None
    try:
        return _checked(decode(Placement, json.loads(data))), tag
    except (GddlError, ValueError) as error:
        what = error.what if isinstance(error, GddlError) else str(error)
        remedy = "restore the object, or delete it: tables are then reassigned, and DAG ids may change"
        raise RetriableError("PLACEMENT_DAMAGED", f"it can't be read: {what}", where=path, remedy=remedy) from error


def _checked(found: Placement) -> Placement:
    """
    Raises:
        ValueError: another release wrote it, or an id is not a DAG id.
    """
    if found.format != Placement.format:
        raise ValueError(f"format {found.format} belongs to another release")
    wrong = [name for name in (*found.packs, *found.single, *found.retired) if not _ID.fullmatch(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r:.80} is not a DAG id")
    return found


def tag_of(path: str, environ: Mapping[str, str]) -> str:
    """Version tag of the stored placement; empty where there is none."""
    found = open_store(environ).stat(path)
    return "" if found is None else plain_tag(found.etag)


def plain_tag(tag: str | None) -> str:
    """ETag without the quotes that S3 adds in some responses; empty for None."""
    return (tag or "").strip('"')


@dataclass(frozen=True)
class Serving:
    """The current placement: pipelines by DAG id, and the DAG id of each table."""

    pipelines: Mapping[str, Pipeline]
    homes: Mapping[str, str]


def keep(document: PlacementDocument, serving: Serving, now: float, environ: Mapping[str, str]) -> bool:
    """Write the current placement unless it is already stored; False: another process was faster.

    Expired ids are dropped.

    Args:
        now: seconds since the epoch.

    Raises:
        GddlError: the store does not answer; see `Storage`.
    """
    found = document.placement
    retired = {name: one for name, one in found.retired.items() if one.until > now}
    if document.is_kept and len(retired) == len(found.retired):
        return True
    store = open_store(environ)
    if document.tag is None:
        retired |= dict(_earlier(store, document, serving, now))
    return store.swap(document.path, to_json(replace(found, retired=retired)).encode(), document.tag)


def _earlier(
    store: Storage, document: PlacementDocument, serving: Serving, now: float
) -> Iterator[tuple[str, RetiredPack]]:
    """Packs with ids of an earlier release and a run in the last days, found by their hints."""
    prefix = next((pipeline.prefix for pipeline in serving.pipelines.values()), "")
    for found in store.list(join(document.roots.lake, STATE, "airflow")):
        dag_id = found.name.removesuffix(".json")
        is_pack = "/" not in dag_id and dag_id.startswith(f"{prefix}{_EARLIER}")
        if not is_pack or dag_id in serving.pipelines or found.modified < now - _SERVED_SECONDS:
            continue
        tables = sorted(serving.homes.keys() & _tables(store, found.path))
        if tables:
            pack = _pack(dag_id, tables, serving.pipelines[serving.homes[tables[0]]])
            yield dag_id.removeprefix(prefix), RetiredPack(pack=pack, until=now + _SERVED_SECONDS)


def _tables(store: Storage, path: str) -> set[str]:
    try:
        data = json.loads(store.read(path))
        return {str(name) for part in ("tables", "failed") for name in data.get(part, ())}
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return set()


def _pack(dag_id: str, tables: list[str], like: Pipeline) -> Pack:
    schedule = "continuous" if re.search(r"\.continuous\.", dag_id) else "earlier"
    return Pack(source=like.source, tier=like.tier, schedule=schedule, tables=tuple(tables), view=like.view)
