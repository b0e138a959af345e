"""This project by its command: metadata in a folder, `gddl run` after each arrival."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable

from tests.conformance.adapters.ours import held, land, row_of
from tests.conformance.delivery import Delivery, Outcome


def play(delivery: Delivery, folder: Path) -> Outcome:
    """Run the command of this environment."""
    said: Counter[str] = Counter()
    refused = ""
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    for arrival in delivery.arrivals:
        row = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in row_of(delivery, arrival).items()
        }
        _write(folder, {**row, "options": json.loads(json.dumps(row["options"]))})
        land(folder / "landing" / "s" / "t", arrival)
        result = _run(folder)
        warned = [warning["code"] for warning in result.get("warnings") or []]
        said.update(warned)
        refused = (result.get("error") or {}).get("code", "") or held(warned)
    bad = [row for row in _rows(folder / "lake" / "s" / "t__errors") or [] if row["resolved_at"] is None]
    said.update(row["code"] for row in bad)
    rows = _rows(folder / "lake" / "s" / "t")
    return Outcome(None if rows is None else tuple(rows), dict(said), refused, len(bad))


def _write(folder: Path, row: dict[str, Any]) -> None:
    (folder / "m" / "tables").mkdir(parents=True, exist_ok=True)
    settings = {"landing": "../landing", "lake": "../lake"}
    (folder / "m" / "gddl.yaml").write_text(yaml.safe_dump(settings))
    (folder / "m" / "tables" / "t.yaml").write_text(
        yaml.safe_dump({"source": "s", "tables": [row]}, allow_unicode=True)
    )


ALONE = {"GDDL_SETTLE": "0s", "GDDL_WITHOUT_SPARK": "1"}


def _run(folder: Path) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("gddl")), "run", "--json", "--metadata", str(folder / "m")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ALONE}, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"error": {"code": f"COMMAND_FAILED {done.stderr[-300:]}"}}
    found: dict[str, Any] = lines[-1]
    return found


def _rows(path: Path) -> list[dict[str, Any]] | None:
    if not DeltaTable.is_deltatable(str(path)):
        return None
    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows
