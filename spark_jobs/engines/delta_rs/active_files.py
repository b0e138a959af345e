"""The data files of a table as its log names them: `deltalake` 1.6 shows neither their deletion vectors nor all fields.

Reads the newest checkpoint, of either version of the protocol and in parts or whole, and the commits after it.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage

Add = Mapping[str, Any]
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)")


def active_files(storage: Storage, table: str, version: int) -> dict[str, Add]:
    """`add` actions of a version by the path that they state."""
    log = join(table, "_delta_log")
    names = _names(storage, log, _after(storage, log, version))
    start, parts = _checkpoint(names, version)
    if start < 0:  # the last checkpoint that the log names is gone, or not whole
        names = _names(storage, log, "")
        start, parts = _checkpoint(names, version)
    found: dict[str, Add] = {}
    for name in parts:
        for action in _checkpointed(storage, log, name):
            found[action["path"]] = action
    for name in names:
        match = _COMMIT.fullmatch(name)
        if match and start < int(match[1]) <= version:
            _apply(found, storage.read(join(log, name)))
    return found


def _names(storage: Storage, log: str, after: str) -> list[str]:
    return [item.path.rsplit("/", 1)[-1] for item in storage.list(log, after)]


def _after(storage: Storage, log: str, version: int) -> str:
    """Name in the log from which the last checkpoint and all commits since are listed; empty: all of it."""
    try:
        newest = int(json.loads(storage.read(join(log, "_last_checkpoint")))["version"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return ""
    return f"{newest:020d}" if newest <= version else ""


def _checkpoint(names: list[str], version: int) -> tuple[int, list[str]]:
    """Version and files of the newest checkpoint that is whole; -1 without any."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= version:
            found.setdefault((int(match[1]), int(match[3] or 0)), []).append(name)
    whole = {key: files for key, files in found.items() if key[1] in (0, len(files))}
    if not whole:
        return -1, []
    newest = max(whole)
    return newest[0], whole[newest] if newest[1] else whole[newest][:1]  # several of the second version are equal


def _checkpointed(storage: Storage, log: str, name: str) -> Iterator[dict[str, Any]]:
    data = storage.read(join(log, name))
    is_text = name.endswith(".json")
    for action in map(json.loads, data.splitlines()) if is_text else _parquet(data).to_pylist():
        if action.get("add"):
            yield _plain(action["add"])
        if action.get("sidecar"):
            rows = _parquet(storage.read(join(log, "_sidecars", action["sidecar"]["path"])))
            yield from (_plain(row["add"]) for row in rows.to_pylist() if row.get("add"))


def _parquet(data: bytes) -> pa.Table:
    file = pq.ParquetFile(io.BytesIO(data), coerce_int96_timestamp_unit="us")
    wanted = [name for name in ("add", "sidecar") if name in file.schema_arrow.names]
    return file.read(wanted, use_threads=False)


def _plain(add: Mapping[str, Any]) -> dict[str, Any]:
    """An action as commits spell it."""
    left = {name: value for name, value in add.items() if value is not None and not name.endswith("_parsed")}
    maps = {name: dict(left[name]) for name in ("partitionValues", "tags") if isinstance(left.get(name), list)}
    vector = {name: value for name, value in (left.get("deletionVector") or {}).items() if value is not None}
    return {**left, **maps, **({"deletionVector": vector} if vector else {})}


def _apply(found: dict[str, Add], commit: bytes) -> None:
    """A commit's removals, then what it adds: one that replaces a file's vector has both."""
    actions = [json.loads(line) for line in commit.splitlines()]
    for action in actions:
        if "remove" in action:
            found.pop(action["remove"]["path"], None)
    for action in actions:
        if "add" in action:
            found[action["add"]["path"]] = action["add"]
