"""Problems of the metadata, shown as an import error in Airflow."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl import configuration
from airflow_gddl.runtime.snapshot import MetadataSnapshot


class MetadataProblems(Exception):  # noqa: N818 - the name is the headline of the import error
    """The metadata has problems; the text is for its author."""


def raise_problems(metadata_dir: str | Path | None = None, *, beside: str | Path | None = None) -> None:
    """
    Raises:
        MetadataProblems: naming each invalid row, and files that can't be read.
        FatalError: `CACHE_UNUSABLE`.
    """
    place = configuration.metadata_place(metadata_dir, beside)
    text = problems_text(configuration.snapshot(place, parsing=True))
    if text:
        raise MetadataProblems(f"\n{text}")


def problems_text(snapshot: MetadataSnapshot) -> str:
    """Why the metadata is not as its author wants it, in lines; empty when it is."""
    state, problems, unbuilt, taken = snapshot.state, snapshot.problems(), snapshot.unbuilt(), snapshot.taken()
    lines = []
    if state.stale_since is not None:
        serves = "the last good copy is used" if snapshot.pipelines() else "no table is scheduled"
        lines += [f"The metadata can't be read since {state.stale_since}; {serves}:", f"  {state.why}"]
    if state.placement_why:
        lines += ["The DAGs that tables belong to can't be read; the last that were known are used:"]
        lines += [f"  {state.placement_why}"]
    if snapshot.cache_trouble:
        lines += ["The compiled metadata is in a temporary folder:", f"  {snapshot.cache_trouble}"]
    lines += taken
    if problems:
        lines += [f"{_count(len(problems), 'problem')} in the metadata; every other row is scheduled:"]
        lines += [f"  {problem}" for problem in problems]
    if unbuilt:
        pipelines = _count(len(unbuilt), "pipeline")
        lines += [f"{pipelines} can't be made a DAG; change their rows, the others are scheduled:"]
        lines += [f"  {line}" for line in unbuilt]
    if state.carried:
        lines += [f"{_count(len(state.carried), 'table')} kept as before, because a file can't be read."]
    return "\n".join(lines)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
