"""What a check shows, and the file that may be published: made of names and numbers that this project knows, alone.

Nothing of a platform's answers, the metadata or the environment is copied into the file, so that there is nothing to
hide: texts of errors stay on the screen.
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_gddl import __version__
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, duration
from airflow_gddl.contract.documentation import code_texts
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import CATALOGS
from airflow_gddl.contract.packages import installed_version
from airflow_gddl.contract.s3 import S3Settings
from airflow_gddl.platform_check.checks import REASONS, Outcome
from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.runners.descriptor import RUNNERS

FORM = 1
"""Version of the file's form."""
PACKAGES = ("apache-airflow", "boto3", "databricks-sdk", "delta-spark", "deltalake", "obstore", "pyarrow", "pyspark")
OTHER = "other"
"""What stands for a name that is none of this project's."""
_STYLES = {"PASS": "green", "FAIL": "bold red", "NOT TRIED": "dim"}
_NUMBERS = re.compile(r"\d+(\.\d+)*")
_SYSTEMS = ("Darwin", "Linux", "Windows")
_MACHINES = ("aarch64", "arm64", "x86_64")


def show(screen: Screen, outcomes: Sequence[Outcome]) -> None:
    """A row for each check, and below them a line for each that did not pass."""
    columns = ("check", "from", "result", ScreenColumn("took", "right"), ScreenColumn("cause", spare=1))
    screen.table(columns, [_row(one) for one in outcomes])
    for state in ("NOT TRIED", "FAIL"):
        for one in outcomes:
            if one.state == state:
                screen.say(f"{state} {one.line}", _STYLES[state])


def _row(one: Outcome) -> list[Cell | str]:
    took = duration(one.seconds) if one.state != "NOT TRIED" else ""
    return [one.check, one.origin, Cell(one.state, _STYLES[one.state]), took, one.cause or one.reason]


def summary(outcomes: Sequence[Outcome]) -> str:
    """`22 passed, 1 failed, 4 not tried`."""
    found = Counter(one.state for one in outcomes)
    return f"{found['PASS']} passed, {found['FAIL']} failed, {found['NOT TRIED']} not tried"


def report(context: CheckContext, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The content of the file."""
    loaded = context.loaded
    return {
        "form": FORM,
        "airflow_gddl": _version(__version__),
        "python": _version(platform.python_version()),
        "system": [_known(platform.system(), _SYSTEMS), _known(platform.machine(), _MACHINES)],
        "packages": {name: _version(found) for name in PACKAGES if (found := installed_version(name)) is not None},
        "store": "s3" if context.on_s3 else "local",
        "endpoint": _endpoint(context.cli.environ) if context.on_s3 else "none",
        "runner": _known(loaded.runner, _own(RUNNERS)),
        "catalogs": sorted({_known(one.kind, _own(CATALOGS)) for one in loaded.catalogs.values()}),
        "results": dict(Counter(one.state for one in outcomes)),
        "checks": [_entry(one) for one in outcomes],
    }


def text(content: Mapping[str, Any]) -> str:
    """The file: JSON, one line for each check."""
    head = {name: value for name, value in content.items() if name != "checks"}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    checks = ",\n".join(f"    {json.dumps(one)}" for one in content["checks"])
    return "{\n" + ",\n".join(lines) + ',\n  "checks": [\n' + checks + "\n  ]\n}\n"


def is_report(data: bytes) -> bool:
    """Whether a file is empty or the report of a check."""
    try:
        return not data or "checks" in json.loads(data)
    except (ValueError, TypeError):
        return False


def _entry(one: Outcome) -> dict[str, Any]:
    return {
        "check": one.check,
        "from": one.origin,
        "result": one.state,
        "code": one.code,
        "cause": one.cause if not one.cause or one.cause in _codes() else OTHER,
        "reason": _known(one.reason, REASONS) if one.reason else "",
        "seconds": round(one.seconds, 1),
    }


def _codes() -> Mapping[str, Any]:
    """Codes of this project, and that of errors without one."""
    return {**code_texts(), "UNEXPECTED": None}


def _own(extensions: Any) -> frozenset[str]:
    """Names of the kinds that this project has, without those of other packages."""
    return frozenset((*extensions.built_in, *extensions.referenced))


def _known(name: str, names: Any) -> str:
    return name if name in names else OTHER


def _version(found: str) -> str:
    """Its numbers: what follows them may be the name of whoever built it."""
    numbers = _NUMBERS.match(found)
    return numbers[0] if numbers else OTHER


def _endpoint(environ: Mapping[str, str]) -> str:
    """Whether the clients are told where S3 is; else it is Amazon's."""
    try:
        return "default" if S3Settings.of(environ).endpoint is None else "own"
    except FatalError:  # no URL: nothing was reached there
        return "own"
