"""The change data feed of a table, compared with the difference of its versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

FEED = {"delta.enableChangeDataFeed": "true"}


def rows_at(path: str, version: int) -> Counter[str]:
    return Counter(map(_line, pa.table(DeltaTable(path, version=version).to_pyarrow_table()).to_pylist()))


def _line(row: Mapping[str, Any]) -> str:
    """Without the feed's own columns, and without nulls: a version may lack a column that the feed's reader has."""
    return repr({name: row[name] for name in sorted(row) if row[name] is not None and not name.startswith("_c")})


def feed_at(path: str, version: int) -> list[dict[str, Any]]:
    """Rows of the feed of one version."""
    found = DeltaTable(path).load_cdf(starting_version=version, ending_version=version)
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows


def differing_versions(path: str, *, net: bool = False) -> list[str]:
    """Versions whose feed isn't the difference from the version before, and what is wrong with it.

    Args:
        net: rows may come and go in one version: a full refresh by Spark replaces all rows.
    """
    found = []
    for version in range(1, DeltaTable(path).version() + 1):
        before, after = rows_at(path, version - 1), rows_at(path, version)
        feed = feed_at(path, version)
        gone = Counter(_line(row) for row in feed if row["_change_type"] in ("delete", "update_preimage"))
        come = Counter(_line(row) for row in feed if row["_change_type"] in ("insert", "update_postimage"))
        if net:
            gone, come = gone - come, come - gone
        if gone != before - after or come != after - before:
            found.append(f"version {version}: {feed}, not -{before - after} +{after - before}")
    return found
