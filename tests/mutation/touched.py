"""A plugin of pytest: which functions of `spark_jobs` each test calls, how long it takes, and whether it passes.

It writes a line of JSON a test to the file that `GDDL_TOUCHED` names. What tests do in further processes is not seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

_ROOT = Path(__file__).parents[2]
_CODE = str(_ROOT / "spark_jobs") + os.sep
_called: set[tuple[str, int]] = set()


def _trace(frame: FrameType, _event: str, _argument: object) -> None:
    code = frame.f_code
    if code.co_filename.startswith(_CODE):
        _called.add((code.co_filename, code.co_firstlineno))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _called.clear()
    began, failed = time.process_time(), item.session.testsfailed
    threading.settrace(_trace)
    sys.settrace(_trace)
    yield
    sys.settrace(None)
    threading.settrace(None)
    functions = sorted((str(Path(path).relative_to(_ROOT)), line) for path, line in _called)
    if functions:
        passed, seconds = item.session.testsfailed == failed, time.process_time() - began
        line = {"test": item.nodeid, "passed": passed, "seconds": seconds, "functions": functions}
        with Path(os.environ["GDDL_TOUCHED"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
