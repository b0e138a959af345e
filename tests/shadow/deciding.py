"""A person's decision on the differences of a table."""

from __future__ import annotations

import json
from typing import Any

from airflow_gddl.contract.spec import TableSpec
from tests.harness.lake import Lake
from tests.one_task.commands import gddl


def metadata_of(lake: Lake, *specs: TableSpec) -> None:
    """Rows for the command, which reads of them where their tables are."""
    folder = lake.root / "metadata" / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    roots = {"landing": lake.roots.landing, "lake": lake.roots.lake}
    (folder.parent / "gddl.yaml").write_text(json.dumps(roots))
    rows = [{"table": spec.table, "keys": list(spec.keys), "shadow": spec.shadow} for spec in specs]
    (folder / "rows.yaml").write_text(json.dumps({"source": "default", "tables": rows}))


def shown(lake: Lake, spec: TableSpec) -> list[dict[str, Any]]:
    """Differences of a table that `gddl shadow show` prints."""
    return gddl(lake.root, "shadow", "show", "--table", spec.table)[0]


def release(lake: Lake, spec: TableSpec, reason: str = "the fault is mended") -> list[str]:
    """Batches that `gddl shadow release` has released."""
    (line,), _ = gddl(lake.root, "shadow", "release", "--table", spec.table, "--reason", reason)
    return list(line["released"])
