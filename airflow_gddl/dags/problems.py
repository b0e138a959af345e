"""Problems of the metadata, shown as an import error in Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_gddl import configuration
from airflow_gddl.runtime.snapshot import MetadataSnapshot


@dataclass(frozen=True)
class MetadataState:
    """Status of the metadata.

    Attributes:
        pipelines: number of pipelines.
        problems: one line for each invalid row.
        stale_since: ISO 8601 UTC since when the current snapshot is outdated; null when it is not.
        why: why newer metadata can't be read; empty otherwise.
        unbuilt: a line for each pipeline that can't be made a DAG, as of the last parse.
        carried: tables kept because a file that may hold them can't be read.
        cache: why the cache folder can't be used, and another one is; empty otherwise.
        taken: a line for each other metadata folder with DAGs of the same ids.
    """

    pipelines: int
    problems: tuple[str, ...]
    stale_since: str | None
    why: str
    carried: tuple[str, ...]
    unbuilt: tuple[str, ...]
    cache: str = ""
    taken: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not (self.problems or self.unbuilt or self.cache or self.taken) and self.stale_since is None

    def __str__(self) -> str:
        lines = []
        if self.stale_since is not None:
            serves = "the last good copy is used" if self.pipelines else "no table is scheduled"
            lines += [f"The metadata can't be read since {self.stale_since}; {serves}:", f"  {self.why}"]
        if self.cache:
            lines += ["The compiled metadata is in a temporary folder:", f"  {self.cache}"]
        lines += self.taken
        if self.problems:
            lines += [f"{_count(len(self.problems), 'problem')} in the metadata; every other row is scheduled:"]
            lines += [f"  {problem}" for problem in self.problems]
        if self.unbuilt:
            unbuilt = _count(len(self.unbuilt), "pipeline")
            lines += [f"{unbuilt} can't be made a DAG; change their rows, the others are scheduled:"]
            lines += [f"  {line}" for line in self.unbuilt]
        if self.carried:
            lines += [f"{_count(len(self.carried), 'table')} kept as before, because a file can't be read."]
        return "\n".join(lines)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


class MetadataProblems(Exception):  # noqa: N818 - the name is the headline of the import error
    """The metadata has problems; the text is for its author."""


def metadata_state(metadata_dir: str | Path | None = None, *, beside: str | Path | None = None) -> MetadataState:
    """Status of the metadata in the current snapshot.

    Raises:
        FatalError: `CACHE_UNUSABLE`.
    """
    snapshot: MetadataSnapshot = configuration.snapshot(configuration.metadata_place(metadata_dir, beside))
    state = snapshot.state
    return MetadataState(
        pipelines=len(snapshot.pipelines()),
        problems=snapshot.problems(),
        stale_since=state.stale_since,
        why=state.why,
        carried=state.carried,
        unbuilt=snapshot.unbuilt(),
        cache=snapshot.cache_trouble,
        taken=snapshot.taken(),
    )


def raise_problems(metadata_dir: str | Path | None = None, *, beside: str | Path | None = None) -> None:
    """
    Raises:
        MetadataProblems: naming each invalid row, and files that can't be read.
    """
    state = metadata_state(metadata_dir, beside=beside)
    if not state.is_good:
        raise MetadataProblems(f"\n{state}")


tell = raise_problems  # the name in DAG files of earlier releases
