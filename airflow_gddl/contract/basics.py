"""Words of the contract without its classes, for modules that every worker imports."""

from __future__ import annotations

from typing import Literal, get_args

CONTRACT_VERSION = 1
Priority = Literal["low", "normal", "high", "critical"]
PRIORITY_RANK: dict[str, int] = {name: rank for rank, name in enumerate(reversed(get_args(Priority)))}
"""0: starts first."""
CALENDAR = {
    "@hourly": "{m} * * * *", "@daily": "{m} 0 * * *", "@weekly": "{m} 0 * * 0",
    "@monthly": "{m} 0 1 * *", "@yearly": "{m} 0 1 1 *",
}  # fmt: skip
"""Cron lines of named schedules, where `m` is a minute."""
AirflowView = Literal["table", "group", "mapped", "pack"]
FEATURE = "feature"
"""Key of the metadata of a field of a row: the feature that it belongs to, see `contract.features`."""
STRICT = {"extra": "forbid", "use_attribute_docstrings": True}
"""pydantic configuration of the contract's classes."""
LOADS = ("run", "rebuild", "reload", "errors_replay", "release", "resync_rows")
"""Actions that load."""
UPKEEP = ("maintain", "verify", "erase", "errors_dismiss")
"""Actions that load nothing, which the names of their records state."""
CLEARING = ("erase", "errors_dismiss")
"""Those after which fewer rows may be in quarantine."""
