"""Row filter and expectations (semantics, 17 and 18), as far as generated histories use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_gddl.contract.table_spec import Term
from tests.oracle.model import NotModelledError, Value

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "<>": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    ">": lambda a, b: bool(a > b),
}


def truth(term: Term, row: Mapping[str, Value]) -> bool | None:
    """Whether a condition holds for a row; null where that is not known."""
    if term.op in _COMPARED:
        left, right = (_value(arg, row) for arg in term.args)
        return None if left is None or right is None else _COMPARED[term.op](left, right)
    if term.op == "is null":
        return _value(term.args[0], row) is None
    parts = [truth(arg, row) for arg in term.args]
    if term.op == "not":
        return None if parts[0] is None else not parts[0]
    if term.op not in ("and", "or"):
        raise NotModelledError(term.op)
    decides = term.op == "or"
    if decides in parts:
        return decides
    return None if None in parts else not decides


def _value(term: Term, row: Mapping[str, Value]) -> Value:
    if term.op == "column":
        return next((value for name, value in row.items() if name.lower() == term.value.lower()), None)
    if term.op not in ("text", "number"):
        raise NotModelledError(term.op)
    return int(term.value) if term.op == "number" else term.value
