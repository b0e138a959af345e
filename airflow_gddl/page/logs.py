"""Logs of jobs in the lake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract.layout import join, log_folder
from airflow_gddl.stores import open_store

SHOWN_BYTES = 1024 * 1024
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}$"
"""Pattern of DAG ids and job ids, without path separators."""


def newest_part(lake: str, dag_id: str, job: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The last lines of a job's log: `text`, of the whole `size` in bytes `left_out`, and the log's `place`.

    Raises:
        FileNotFoundError: there is none.
        RetriableError, FatalError: as `Storage`.
    """
    place = join(log_folder(lake, dag_id), f"{job}.log")
    with open_store(environ).open_input(place) as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - SHOWN_BYTES))
        text = log.read(SHOWN_BYTES).decode(errors="replace")
    if size > SHOWN_BYTES:
        text = text.partition("\n")[2]
    return {"place": place, "text": text, "size": size, "left_out": max(0, size - len(text.encode()))}
