"""A source whose log begins anew: refused where files tell it, and in order once the row says when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.debezium.lake import Lake, warnings_of
from tests.debezium.probing import text
from tests.engine_port import EnginePort

T = 1_700_000_000_000
BEGAN = "2023-11-14T22:15:00Z"


def mysql(op: str, row: dict[str, Any], file: int, pos: int, seconds: int) -> dict[str, Any]:
    source = {"connector": "mysql", "file": f"mysql-bin.{file:06d}", "pos": pos, "row": 0, "ts_ms": T + 1000 * seconds}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}


def postgresql(op: str, row: dict[str, Any], lsn: int, seconds: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": T + 1000 * seconds}
    return {"op": op, "before": None, "after": row, "source": source}


def filled(engine: EnginePort, tmp_path: Path, **row: Any) -> Lake:
    lake = Lake(engine, tmp_path, **row)
    lake.land(text(mysql("c", {"id": 1, "v": "a"}, 901, 4, 0), mysql("c", {"id": 2, "v": "a"}, 901, 8, 1)))
    lake.run()
    return lake


def test_new_mysql_log_is_refused_until_configured(engine: EnginePort, tmp_path: Path) -> None:
    lake = filled(engine, tmp_path)
    lake.land(text(mysql("u", {"id": 1, "v": "b"}, 1, 4, 101), mysql("c", {"id": 3, "v": "b"}, 1, 9, 102)))
    assert lake.refused() == "SOURCE_LOG_RESTARTED"
    assert lake.replica("id", "v") == [(1, "a"), (2, "a")]

    configured = lake.with_row(options={"log_began": [BEGAN]})
    configured.run()
    assert configured.replica("id", "v") == [(1, "b"), (2, "a"), (3, "b")]
    late = text(mysql("u", {"id": 1, "v": "late"}, 901, 12, 2), mysql("u", {"id": 2, "v": "late"}, 901, 16, 3))
    configured.land(late)
    assert configured.run().late_ignored == 1, "the old log's last file came after all"
    assert configured.replica("id", "v") == [(1, "b"), (2, "late"), (3, "b")]
    configured.run(full_refresh=True)
    assert configured.replica("id", "v") == [(1, "b"), (2, "late"), (3, "b")]
    assert configured.run(action="verify").details["verdict"] == "equal"


def test_full_refresh_reorders_changes_after_a_log_reset(engine: EnginePort, tmp_path: Path) -> None:
    lake = filled(engine, tmp_path)
    old = mysql("u", {"id": 2, "v": "old"}, 901, 12, 2)
    lake.land(text(old, mysql("u", {"id": 1, "v": "b"}, 1, 4, 101)))  # the end of one log and the head of the other
    assert lake.run().late_ignored == 1
    configured = lake.with_row(options={"log_began": [BEGAN]})
    configured.run(full_refresh=True)
    assert configured.replica("id", "v") == [(1, "b"), (2, "old")]
    assert configured.run(action="verify").details["verdict"] == "equal"


def test_restored_postgresql_is_detected(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(postgresql("c", {"id": 1, "v": "a"}, 9000, 0)))
    lake.run()
    lake.land(text(postgresql("u", {"id": 1, "v": "b"}, 500, 30)))
    done = lake.run()
    assert (done.late_ignored, warnings_of(done)) == (1, ["BATCH_LATE"]), "half a minute may be a long transaction"
    lake.land(text(postgresql("u", {"id": 1, "v": "c"}, 600, 100)))
    assert lake.refused() == "SOURCE_LOG_RESTARTED"


@pytest.mark.parametrize("seconds", [-100, 0])
def test_late_file_is_no_new_log(engine: EnginePort, tmp_path: Path, seconds: int) -> None:
    lake = filled(engine, tmp_path)
    lake.land(text(mysql("u", {"id": 1, "v": "late"}, 900, 4, seconds)))
    assert lake.run().late_ignored == 1
    assert lake.replica("id", "v") == [(1, "a"), (2, "a")]
