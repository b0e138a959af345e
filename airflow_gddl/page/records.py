"""Short-lived cache of run records: a table has hundreds, and its page polls every few seconds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.spec import Roots
from airflow_gddl.page.source import Board
from airflow_gddl.runtime.state.board import BoardRow
from airflow_gddl.runtime.state.records import Records, read_records

_RUNS, _TABLES, _SECONDS = 300, 200, 30.0


@dataclass
class RecordCache:
    """Serves the newest records of a table; thread-safe.

    They are read again after 30 s, and when the lake's state has a newer load.
    """

    _kept: OrderedDict[tuple[str, str], tuple[float, Any, Records]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, board: Board, roots: Roots, one: BoardRow, *, fresh: bool) -> Records:
        """Records of one table, from the cache if younger than 30 s.

        Args:
            fresh: read them now.

        Raises:
            GddlError: as `read_records`.
        """
        key = roots.lake, one.row.table
        newest = one.record.last
        with self._lock:
            read_at, of_newest, records = self._kept.get(key, (0.0, None, None))
        if records is not None and not fresh and of_newest == newest and 0 <= board.now - read_at < _SECONDS:
            return records
        records = read_records(roots, one.row.table, _RUNS, board.environ)
        with self._lock:
            self._kept[key] = board.now, newest, records
            self._kept.move_to_end(key)
            while len(self._kept) > _TABLES:
                self._kept.popitem(last=False)
        return records
