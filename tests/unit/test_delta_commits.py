"""The newest of a Delta log's commits, found without listing all of them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.stores import Storage
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.replayed_log import copy_log


def write_log(table: Path, first: int, last: int, checkpoint: str | None) -> None:
    """Commits from `first` to `last`, each with user metadata and a metric of its number."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    for number in range(first, last + 1):
        info = {"userMetadata": f"gddl x {number}", "operationMetrics": {"numOutputRows": str(number)}}
        (log / f"{number:020d}.json").write_text(json.dumps({"commitInfo": info}))
    (log / "_temporary").mkdir()
    if checkpoint is not None:
        (log / "_last_checkpoint").write_text(checkpoint)


@given(
    first=st.integers(0, 120),
    more=st.integers(0, 130),
    behind=st.one_of(st.none(), st.integers(0, 140)),
    asked=st.integers(0, 140),
)
def test_the_version_is_that_of_a_full_listing(first: int, more: int, behind: int | None, asked: int) -> None:
    """The pointer to the last checkpoint may be missing, or old; older commits may have expired."""
    last = first + more
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "t")
        pointer = None if behind is None else json.dumps({"version": max(0, last - behind), "size": 1})
        write_log(table, first, last, pointer)
        commits = DeltaCommits(Storage())
        assert commits.version(str(table)) == last
        wanted = last - asked
        is_near = first <= wanted and asked < 50
        expected = {"numOutputRows": wanted} if is_near else {}
        assert commits.metrics(str(table), f"gddl x {wanted}") == expected
        (table / "_delta_log" / f"{last + 1:020d}.json").write_text("{}")
        assert commits.version(str(table)) == last + 1


def test_unreadable_checkpoint_pointer_is_ignored(tmp_path: Path) -> None:
    write_log(tmp_path / "t", 0, 60, "no json")
    assert DeltaCommits(Storage()).version(str(tmp_path / "t")) == 60


def test_without_a_log_there_is_no_version(tmp_path: Path) -> None:
    commits = DeltaCommits(Storage())
    assert (commits.version(str(tmp_path)), commits.exists(str(tmp_path))) == (None, False)


def test_what_an_interrupted_writer_left_is_no_table(tmp_path: Path) -> None:
    """Spark's writer leaves temporary files and their checksums where the disk was full or it was killed."""
    log, commits = tmp_path / "_delta_log", DeltaCommits(Storage())
    log.mkdir()
    for name in (
        f".{0:020d}.json.82b3ece5.tmp",
        f"..{0:020d}.json.82b3ece5.tmp.crc",
        f".{0:020d}.json.crc",
        "_last_vacuum_info",
    ):
        (log / name).write_text("{}")
    assert not commits.exists(str(tmp_path))
    for name in (
        f"{0:020d}.json",
        f"{9:020d}.checkpoint.parquet",
        f"{9:020d}.checkpoint.0000000001.0000000002.parquet",
    ):
        (log / name).write_text("{}")
        assert commits.exists(str(tmp_path)), name
        (log / name).unlink()


def test_commits_since_a_version_come_after_it(tmp_path: Path) -> None:
    write_log(tmp_path / "t", 3, 5, None)
    found = [DeltaCommits(Storage()).since(str(tmp_path / "t"), version) for version in (2, 3, 5, 6)]
    numbers = [None if commits is None else [commit.version for commit in commits] for commits in found]
    assert numbers == [[3, 4, 5], [4, 5], [], None]


def test_copy_of_a_log_ends_with_its_version(tmp_path: Path) -> None:
    write_log(tmp_path / "t", 3, 5, None)
    copy_log(Storage(), str(tmp_path / "t"), 4, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy/_delta_log").iterdir()) == [f"{n:020d}.json" for n in (3, 4)]
