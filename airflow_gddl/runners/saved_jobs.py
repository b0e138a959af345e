"""Compares the wanted definitions of a platform's saved jobs with the existing ones, for `gddl deploy`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

W = TypeVar("W")


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """`path` from the job down, e.g. `tasks[0].max_retries`; null stands for what isn't there."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class JobChange(Generic[W]):
    """Planned change of one job.

    Attributes:
        wanted: its definition afterwards.
        exists: whether there is one of that name.
        job_id: the platform's id of it, where names are not ids.
        fields: differences; empty for an unchanged or a new job.
    """

    name: str
    wanted: W
    exists: bool
    job_id: int | None = None
    fields: tuple[FieldChange, ...] = ()

    @property
    def action(self) -> Literal["create", "update", "keep"]:
        if not self.exists:
            return "create"
        return "update" if self.fields else "keep"


def differences(wanted: Any, actual: Any, whole: frozenset[str], path: str = "") -> Iterator[FieldChange]:
    """Fields of `wanted` that differ in `actual`. Fields that `wanted` does not set belong to the platform.

    Args:
        whole: names of fields that `wanted` defines completely: other entries are removed.
    """
    ours = path.rpartition(".")[2] in whole
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping) and not ours:
        for name, value in wanted.items():
            yield from differences(value, actual.get(name), whole, f"{path}.{name}" if path else name)
    elif isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual) and not ours:
        for number, (one, other) in enumerate(zip(wanted, actual, strict=True)):
            yield from differences(one, other, whole, f"{path}[{number}]")
    elif wanted != actual:
        yield FieldChange(path=path, before=actual, after=wanted)
