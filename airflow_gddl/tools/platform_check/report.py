"""The file that may be published: made of names and numbers that this project knows, alone.

Nothing of a platform's answers, the metadata or the environment is copied into the file, so that there is nothing to
hide: texts of errors stay on the screen.
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow_gddl import __version__
from airflow_gddl.contract.codes import REGISTER
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.packages import installed_version
from airflow_gddl.contract.s3 import S3Settings
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.tools.platform_check.checks import REASONS, CheckContext, Outcome

FORM = 1
"""Version of the file's form."""
PACKAGES = ("apache-airflow", "boto3", "databricks-sdk", "delta-spark", "deltalake", "obstore", "pyarrow", "pyspark")
OTHER = "other"
"""What stands for a name that is none of this project's."""
_NUMBERS = re.compile(r"\d+(\.\d+)*")
_SYSTEMS = ("Darwin", "Linux", "Windows")
_MACHINES = ("aarch64", "arm64", "x86_64")


def report(context: CheckContext, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The content of the file."""
    codes = {"", *REGISTER}
    return {
        "form": FORM,
        "airflow_gddl": _version(__version__),
        "python": _version(platform.python_version()),
        "system": [_known(platform.system(), _SYSTEMS), _known(platform.machine(), _MACHINES)],
        "packages": {name: _version(found) for name in PACKAGES if (found := installed_version(name)) is not None},
        "store": "s3" if context.on_s3 else "local",
        "endpoint": _endpoint(context.cli.environ) if context.on_s3 else "none",
        "runner": _known(context.loaded.runner, (*RUNNERS.built_in, *RUNNERS.referenced)),
        "results": dict(Counter(one.state for one in outcomes)),
        "checks": [_entry(one, codes) for one in outcomes],
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


def _entry(one: Outcome, codes: Collection[str]) -> dict[str, Any]:
    return {
        "check": one.check,
        "result": one.state,
        "code": one.code,
        "cause": _known(one.cause, codes),
        "reason": _known(one.reason, ("", *REASONS)),
        "seconds": round(one.seconds, 1),
    }


def _known(name: str, names: Collection[str]) -> str:
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
