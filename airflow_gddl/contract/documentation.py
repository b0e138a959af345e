"""What the register says about a code, for messages: pip installs no page, so that each is named by its URL."""

from __future__ import annotations

from airflow_gddl.contract import codes
from airflow_gddl.contract.errors import documented


def of_code(code: str, table: str = "T") -> str:
    """What to do about a code, as far as the register says it, and where to read more.

    Args:
        table: that its commands name.
    """
    more, remedy = documented("codes.md"), codes.of(code).remedy(table)
    return f"{remedy} ({more})" if remedy else f"see {more}"


def of_quarantined(code: str, table: str) -> str:
    """What to do about a table's rows in quarantine with a code."""
    known = codes.of(code)
    return known.remedy(table) if known in codes.QUARANTINED else of_code(code, table)
