"""Rooms: what the core finds by a name in a row, a job or a command, and never imports."""

from __future__ import annotations

import importlib
from typing import Any

from airflow_gddl.contract.codes.code import Code
from airflow_gddl.contract.errors import FatalError


def found(module: str, attribute: str, code: Code, what: str) -> Any:
    """What the module of a room has under a name.

    Raises:
        FatalError: with the code and its text: this installation lacks the room.
    """
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise FatalError(code, what, where=module, remedy="install all of airflow-gddl where the job runs") from None
