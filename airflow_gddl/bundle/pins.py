"""Exact versions of packages that Airflow's constraints do not pin, as tested with MWAA's pins (`tests/packages`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PINS: Mapping[str, str] = {"databricks-sdk": "0.156.0", "obstore": "0.12.1"}
"""By name: packages of the Airflow side's extras and their dependencies that no constraints file pins."""
_BY_EXTRA: Mapping[str, tuple[str, ...]] = {"databricks": ("databricks-sdk",)}


def pinned(extras: Iterable[str]) -> list[str]:
    """Requirement lines for these extras, sorted."""
    names = {"obstore", *(name for extra in extras for name in _BY_EXTRA.get(extra, ()))}
    return [f"{name}=={PINS[name]}" for name in sorted(names)]
