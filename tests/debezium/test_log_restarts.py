"""A source whose log begins anew: refused where files tell it, and in order once the row says when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.topic import Topic, warnings_of

T = 1_700_000_000_000
BEGAN = "2023-11-14T22:15:00Z"


def mysql(op: str, row: dict[str, Any], file: int, pos: int, seconds: int) -> dict[str, Any]:
    source = {"connector": "mysql", "file": f"mysql-bin.{file:06d}", "pos": pos, "row": 0, "ts_ms": T + 1000 * seconds}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}


def postgresql(op: str, row: dict[str, Any], lsn: int, seconds: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": T + 1000 * seconds}
    return {"op": op, "before": None, "after": row, "source": source}


def filled(engine: LocalPort, tmp_path: Path, **row: Any) -> Topic:
    topic = Topic(engine, tmp_path, **row)
    topic.land(text(mysql("c", {"id": 1, "v": "a"}, 901, 4, 0), mysql("c", {"id": 2, "v": "a"}, 901, 8, 1)))
    topic.run()
    return topic


@pytest.mark.deep_on_many
def test_new_mysql_log_is_refused_until_configured(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(mysql("u", {"id": 1, "v": "b"}, 1, 4, 101), mysql("c", {"id": 3, "v": "b"}, 1, 9, 102)))
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"
    assert topic.replica("id", "v") == [(1, "a"), (2, "a")]

    configured = topic.with_row(options={"log_began": [BEGAN]})
    configured.run()
    assert configured.replica("id", "v") == [(1, "b"), (2, "a"), (3, "b")]
    late = text(mysql("u", {"id": 1, "v": "late"}, 901, 12, 2), mysql("u", {"id": 2, "v": "late"}, 901, 16, 3))
    configured.land(late)
    assert configured.run().late_ignored == 1, "the old log's last file came after all"
    assert configured.replica("id", "v") == [(1, "b"), (2, "late"), (3, "b")]
    configured.run(action="rebuild")
    assert configured.replica("id", "v") == [(1, "b"), (2, "late"), (3, "b")]
    assert configured.run(action="verify").details["verdict"] == "equal"


def mixed(*, later: int = 101) -> str:
    """The end of one log and the head of the next in one file."""
    return text(mysql("u", {"id": 2, "v": "old"}, 901, 12, 2), mysql("u", {"id": 1, "v": "b"}, 1, 4, later))


def test_log_reset_inside_a_file_is_refused(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(mixed())
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"
    assert topic.replica("id", "v") == [(1, "a"), (2, "a")]
    configured = topic.with_row(options={"log_began": [BEGAN]})
    assert warnings_of(configured.run()) == []
    assert configured.replica("id", "v") == [(1, "b"), (2, "old")]


@pytest.mark.deep_on_many
def test_log_reset_inside_the_first_file_is_refused(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(mixed())
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"


@pytest.mark.deep_on_many
def test_log_reset_between_files_of_a_batch_is_refused(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(mysql("c", {"id": 1, "v": "a"}, 901, 4, 0)))
    topic.land(text(mysql("u", {"id": 1, "v": "b"}, 1, 4, 101)))
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"


@pytest.mark.deep_on_many
def test_changes_captured_again_are_no_new_log(engine: LocalPort, tmp_path: Path) -> None:
    """A connector that starts again sends older changes again, those of a long statement after newer ones too."""
    topic = filled(engine, tmp_path)
    first = [mysql("u", {"id": 1, "v": "b"}, 901, 12, 300), mysql("u", {"id": 2, "v": "long"}, 902, 4, 100)]
    topic.land(text(*first))
    topic.land(text(first[1], mysql("u", {"id": 2, "v": "c"}, 902, 8, 301), *first))
    assert warnings_of(topic.run()) == []
    topic.land(text(first[1], first[0]))
    topic.run()
    assert topic.replica("id", "v") == [(1, "b"), (2, "c")]


@pytest.mark.deep_on_many
def test_full_refresh_reorders_changes_after_a_log_reset(engine: LocalPort, tmp_path: Path) -> None:
    """They were ingested while they could be those of a long transaction."""
    topic = Topic(engine, tmp_path)
    topic.land(text(postgresql("c", {"id": 1, "v": "a"}, 9000, 0)))
    topic.run()
    early = topic.land(text(postgresql("u", {"id": 1, "v": "b"}, 500, 30)))
    assert topic.run().late_ignored == 1
    configured = topic.with_row(options={"log_began": ["2023-11-14T22:13:45Z"]})
    for lsn in (600, 700):
        configured.land(text(postgresql("c", {"id": lsn, "v": "b"}, lsn, lsn)))
        (warning,) = configured.run().warnings
        assert (warning.code, warning.count, warning.sample) == ("LOG_BEGAN_LATE", 1, (early,))
    assert configured.replica("id", "v") == [(1, "a"), (600, "b"), (700, "b")]
    assert warnings_of(configured.run(action="rebuild")) == []
    assert configured.replica("id", "v") == [(1, "b"), (600, "b"), (700, "b")]
    assert configured.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
@pytest.mark.parametrize("files", [1, 4])
def test_log_reset_followed_by_a_steady_stream_is_refused(engine: LocalPort, tmp_path: Path, files: int) -> None:
    """Each change is within a minute of the one before, and the last is more than that behind the former log."""
    topic = Topic(engine, tmp_path)
    topic.land(text(postgresql("c", {"id": 1, "v": "a"}, 9000, 0)))
    topic.run()
    changes = [postgresql("u", {"id": 1, "v": "b"}, 500 + at, 20 * (at + 1)) for at in range(4)]
    for part in [changes] if files == 1 else [[change] for change in changes[:3]]:
        topic.land(text(*part))
        if files > 1:
            topic.run()
    if files > 1:
        topic.land(text(changes[3]))
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"


@pytest.mark.deep_on_many
def test_restored_postgresql_is_detected(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(postgresql("c", {"id": 1, "v": "a"}, 9000, 0)))
    topic.run()
    topic.land(text(postgresql("u", {"id": 1, "v": "b"}, 500, 30)))
    done = topic.run()
    assert (done.late_ignored, warnings_of(done)) == (1, ["BATCH_LATE"]), "half a minute may be a long transaction"
    topic.land(text(postgresql("u", {"id": 1, "v": "c"}, 600, 100)))
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"


def test_a_change_from_the_future_hides_no_reset(engine: LocalPort, tmp_path: Path) -> None:
    """The next one behind it in the log has the time at the log's end. No moment is between the logs."""
    topic = Topic(engine, tmp_path)
    old = []
    for lsn, seconds in ((9000, 0), (9100, 10**8), (9200, 5)):
        old.append(topic.land(text(postgresql("c", {"id": lsn, "v": "a"}, lsn, seconds))))
        topic.run()
    topic.land(text(postgresql("u", {"id": 9000, "v": "b"}, 500, 200)))
    error = topic.refused()
    assert (error.code, "new snapshot" in str(error)) == ("SOURCE_LOG_RESTARTED", True)
    for file in old:
        Path(file).unlink()
    topic.land(text(*(postgresql("r", {"id": key, "v": "b"}, 600, 300) for key in (9000, 9100))))
    topic.run(action="reload", confirmed=True)
    assert topic.replica("id", "v") == [(9000, "b"), (9100, "b")]
    topic.land(text(postgresql("u", {"id": 9100, "v": "c"}, 700, 400)))
    topic.run()
    assert topic.replica("id", "v") == [(9000, "b"), (9100, "c")]


@pytest.mark.deep_on_many
@pytest.mark.parametrize("seconds", [-100, 0])
def test_late_file_is_no_new_log(engine: LocalPort, tmp_path: Path, seconds: int) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(mysql("u", {"id": 1, "v": "late"}, 900, 4, seconds)))
    assert topic.run().late_ignored == 1
    assert topic.replica("id", "v") == [(1, "a"), (2, "a")]


def test_changes_that_are_sent_again_behind_one_that_is_left_out_are_not_taken_twice(
    engine: LocalPort, tmp_path: Path
) -> None:
    """Without keys: what the row filter leaves out stood between them."""
    topic = Topic(engine, tmp_path, keys=[], where="v <> 'out'")
    one, other = postgresql("c", {"id": 1, "v": "in"}, 5, 0), postgresql("c", {"id": 2, "v": "out"}, 6, 0)
    topic.land(text(one, other, one, other))
    topic.run()
    assert topic.values("replica", "id", "v") == [(1, "in")]
    topic.land(text(postgresql("c", {"id": 1, "v": "in"}, 7, 1), postgresql("c", {"id": 1, "v": "in"}, 7, 1)))
    topic.run()
    assert topic.values("replica", "id", "v") == [(1, "in")] * 3
