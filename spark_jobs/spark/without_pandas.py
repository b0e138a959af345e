"""Keeps pandas out of a job's process."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ImportError("pandas is left out")


def leave_pandas_out() -> None:
    """Let pyarrow do without pandas in this process, as where it is not installed.

    pyarrow imports pandas with the first array that is made of Python values, for conversions that no job makes, which
    delays the start of a job and of each of its processes. It looks for pandas once; other importers still find it.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
