"""The placement of tables in DAGs, stored in the lake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from airflow_gddl.contract.codec import of_format, to_json
from airflow_gddl.contract.codes import PLACEMENT_DAMAGED
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.compiled.documents import PlacementDocument
from airflow_gddl.stores import open_store
from airflow_gddl.topology.placement import Placement, legal

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
        return _checked(of_format(Placement, data)), tag
    except ValueError as error:
        remedy = "restore the object, or delete it: tables are then reassigned, and DAG ids may change"
        raise RetriableError(PLACEMENT_DAMAGED, f"it can't be read: {error}", where=path, remedy=remedy) from error


def _checked(placement: Placement) -> Placement:
    """Check that each name in a placement is a DAG id.

    Raises:
        ValueError: an id is not a DAG id.
    """
    wrong = [name for name in (*placement.packs, *placement.retired) if not _ID.fullmatch(name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r:.80} is not a DAG id")
    return placement


def keep(document: PlacementDocument, now: float, environ: Mapping[str, str]) -> bool:
    """Write the current placement unless it is already stored; False: another process was faster.

    Expired ids are dropped.

    Args:
        now: seconds since the epoch.

    Raises:
        GddlError: the store does not answer; see `Storage`.
    """
    current = document.placement
    retired = {name: one for name, one in current.retired.items() if one.until > now}
    if document.is_kept and len(retired) == len(current.retired):
        return True
    return open_store(environ).swap_once(
        document.path, to_json(replace(current, retired=retired)).encode(), document.tag
    )
