"""Options of the dialect `debezium`: how Debezium's events are written to files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from airflow_gddl.contract.table_spec import STRICT


@dataclass(frozen=True, kw_only=True)
class DebeziumOptions:
    """Defaults are Debezium's own; set only what the connector's settings change."""

    __pydantic_config__ = STRICT

    unavailable: str = "__debezium_unavailable_value"
    """`unavailable.value.placeholder`: placeholder of a value that the source left out; the stored value is kept."""
    semantic_types: Mapping[str, str] = field(default_factory=dict)
    """Column to Connect type name (`io.debezium.time.MicroTimestamp`, ...), for files without type names."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Column to SQL type (`decimal(12,2)`, `date`, ...) for values that come as text; others keep their type."""
    path_format: str | None = None
    """`path.format` of a sink that makes folders of time (`'year'=YYYY/'month'=MM/'day'=dd`), for shorter listings."""
    log_began: tuple[str, ...] = ()
    """When the source's log was reset (failover, reset, restored backup), ISO 8601: later changes come after all."""
    snapshots: Literal["reload", "merge"] = "reload"
    """Meaning of a snapshot after the first: the whole table, whose rows replace all before; or rows to be merged."""
    lookback: str = "7d"
    """How far behind the newest folder each run lists for late files; needs `path_format`, else all are listed."""
    missing_folder: Literal["report", "empty", "ignore"] = "report"
    """Meaning of a missing folder: a warning, an empty table, or no new files."""
    verify_connection: str | None = None
    """Name of the connection to the source that `gddl verify` compares with; null: none. Never its content."""
