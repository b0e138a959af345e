"""What the job and the process of the engine send each other: JSON with a length before it, and bytes behind it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

_LENGTHS = struct.Struct(">QQ")


def own_topics(prefix: str) -> tuple[str, str]:
    """Topics of messages and of heartbeats, which are no tables, whatever tables are called."""
    return f"{prefix}.message", f"__debezium-heartbeat.{prefix}"


@dataclass(frozen=True)
class Frame:
    """A message; `kind`: `start`, `batch`, `ack`, `stop`, `end`."""

    kind: str
    fields: Mapping[str, Any]
    data: bytes = b""


def write_frame(stream: IO[bytes], kind: str, fields: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
    head = json.dumps({"kind": kind, **fields}).encode()
    stream.write(_LENGTHS.pack(len(head), sum(map(len, parts))) + head)
    stream.writelines(parts)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Null: the other side has ended."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head, size = _LENGTHS.unpack(lengths)
    fields, data = stream.read(head), stream.read(size)
    if len(fields) < head or len(data) < size:
        return None
    values = json.loads(fields)
    return Frame(values.pop("kind"), values, data)
