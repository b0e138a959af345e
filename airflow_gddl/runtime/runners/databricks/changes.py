"""Jobs as they should be against jobs as they are: what `gddl deploy databricks` would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from databricks.sdk.service.jobs import JobSettings

Plain = Mapping[str, Any]
# Ours alone: an entry that is there and not wanted is to go. Of anything else, what we don't set is the platform's.
_WHOLE = ("tags", "spark_conf", "spark_env_vars", "dependencies", "libraries", "parameters")


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """`path` from the job down, e.g. `tasks[0].max_retries`; null stands for what isn't there."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class JobChange:
    """What becomes of one job.

    Attributes:
        job_id: null for one that is to be made.
        wanted: its settings afterwards.
        fields: what differs; empty where nothing is to be done, or all is new.
    """

    name: str
    wanted: JobSettings
    job_id: int | None = None
    fields: tuple[FieldChange, ...] = ()

    @property
    def action(self) -> Literal["create", "update", "keep"]:
        if self.job_id is None:
            return "create"
        return "update" if self.fields else "keep"


def compare(name: str, wanted: JobSettings, job_id: int | None, actual: JobSettings | None) -> JobChange:
    """
    Args:
        actual: null when there is no such job.
    """
    found = tuple(_differing(wanted.as_dict(), actual.as_dict(), "")) if actual is not None else ()
    return JobChange(name=name, wanted=wanted, job_id=job_id, fields=found)


def _differing(wanted: Any, actual: Any, path: str) -> Iterator[FieldChange]:
    whole = path.rpartition(".")[2] in _WHOLE
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping) and not whole:
        for name, value in wanted.items():
            yield from _differing(value, actual.get(name), f"{path}.{name}" if path else name)
    elif isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual) and not whole:
        for number, (one, other) in enumerate(zip(wanted, actual, strict=True)):
            yield from _differing(one, other, f"{path}[{number}]")
    elif wanted != actual:
        yield FieldChange(path=path, before=actual, after=wanted)
