"""What names of landed files tell, whoever writes the data."""

from __future__ import annotations

import re
from typing import Literal

FileKind = Literal["load", "change"]
FileFormat = Literal["parquet", "csv", "json"]
Names = tuple[FileKind, FileFormat, tuple[str, ...]]
"""Kind and format of a data file, and what sorts files of its kind in the order their writer made them."""

_TEMPORARY = re.compile(r".*(~|\.(tmp|temp|crc|part|partial|filepart|swp|_COPYING_)|_\$folder\$)", re.IGNORECASE)


def is_temporary(relative_path: str) -> bool:
    """Hidden and unfinished files, which no warning should mention."""
    parts = relative_path.split("/")
    return any(part.startswith((".", "_")) for part in parts) or _TEMPORARY.fullmatch(parts[-1]) is not None
