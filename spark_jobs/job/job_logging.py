"""Log lines of a job with the table and batch that they are about.

Lines are for people, or with `GDDL_LOG_FORMAT=json` a line of JSON each.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime

from spark_jobs.batch.runtime import Observer, Step

_LOG = logging.getLogger(__name__)
_FOR_PEOPLE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up_logging(run_id: str, environ: Mapping[str, str], observe: Observer) -> Observer:
    """Log to standard error as the environment says; the observer that is returned also notes what is at hand."""
    if environ.get("GDDL_LOG_FORMAT") != "json":
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=_FOR_PEOPLE)
        return observe
    at_hand = WorkAtHand()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(run_id, at_hand))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    _LOG.setLevel(logging.INFO)  # the steps of each batch
    return at_hand.observing(observe)


class WorkAtHand(threading.local):
    """Which table and batch each thread works on, as far as steps show."""

    table: str | None = None
    batch: int | None = None

    def observing(self, observe: Observer) -> Observer:
        """The observer, which also notes what is at hand."""

        def note(step: Step) -> None:
            self.table, self.batch = step.table, step.batch or None
            _LOG.info("%s, %d rows", step.step, step.rows)
            if step.step == "done":
                self.table = self.batch = None
            observe(step)

        return note


class JsonFormatter(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, `run`, `table`, `batch`, `error`; null where it is not known."""

    def __init__(self, run_id: str, at_hand: WorkAtHand) -> None:
        super().__init__()
        self._run_id, self._at_hand = run_id, at_hand

    def format(self, record: logging.LogRecord) -> str:
        table = getattr(record, "table", None) or self._at_hand.table
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "run": self._run_id,
            "table": table,
            "batch": self._at_hand.batch,
            "error": self.formatException(record.exc_info) if record.exc_info else None,
        }
        return json.dumps(line, ensure_ascii=False)
