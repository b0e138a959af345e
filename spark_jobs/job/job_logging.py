"""Log lines of a job with the table and batch that they are about.

Lines are for people, or with `GDDL_LOG_FORMAT=json` a line of JSON each.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spark_jobs.batch.runtime import Observer, Step

_LOG = logging.getLogger(__name__)
_FOR_PEOPLE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up_logging(run_id: str, environ: Mapping[str, str], observe: Observer) -> Observer:
    """Log to standard error as the environment says; the observer that is returned also notes what is at hand."""
    if environ.get("GDDL_LOG_FORMAT") != "json":
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=_FOR_PEOPLE)
        return observe
    at_hand = WorkAtHand(run_id)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(at_hand))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    _LOG.setLevel(logging.INFO)  # the steps of each batch
    return at_hand.observing(observe)


@dataclass
class WorkAtHand:
    """Which table and batch each thread works on, as far as steps show."""

    run_id: str
    _local: threading.local = field(default_factory=threading.local)

    def observing(self, observe: Observer) -> Observer:
        """The observer, which also notes what is at hand."""

        def note(step: Step) -> None:
            self._local.table, self._local.batch = step.table, step.batch or None
            _LOG.info("%s, %d rows", step.step, step.rows)
            if step.step == "done":
                self._local.table = None
            observe(step)

        return note

    @property
    def table(self) -> str | None:
        return getattr(self._local, "table", None)

    @property
    def batch(self) -> int | None:
        return getattr(self._local, "batch", None) if self.table else None


class JsonFormatter(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, `run`, `table`, `batch`, `error`; null where it is not known."""

    def __init__(self, at_hand: WorkAtHand) -> None:
        super().__init__()
        self._at_hand = at_hand

    def format(self, record: logging.LogRecord) -> str:
        table = getattr(record, "table", None) or self._at_hand.table
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "run": self._at_hand.run_id,
            "table": table,
            "batch": self._at_hand.batch,
            "error": self.formatException(record.exc_info) if record.exc_info else None,
        }
        return json.dumps(line, ensure_ascii=False)
