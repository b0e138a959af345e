"""A runner's settings, from the plain values of the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError, MetadataError

T = TypeVar("T")


def settings_of(runner: str, cls: type[T], own: Mapping[str, Any]) -> T:
    """
    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
    """
    try:
        return decode(cls, dict(own))
    except FatalError as error:
        where = f"gddl.yaml, runners.{runner}{error.where.removeprefix(cls.__name__)}"
        remedy = f"correct `runners: {{{runner}: …}}`; docs/metadata.md has every field"
        raise MetadataError("RUNNER_SETTINGS_INVALID", error.what, where=where, remedy=remedy) from error
