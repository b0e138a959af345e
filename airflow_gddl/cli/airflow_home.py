"""The Airflow of this Python, without importing it: where its configuration is, and options in it."""

from __future__ import annotations

import configparser
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from airflow_gddl.contract import python_command
from airflow_gddl.contract.packages import installed_version

VARIABLE = "AIRFLOW__GDDL__JOB_COMMAND"
_SECTION, _OPTION = "gddl", "job_command"
_HEAD = re.compile(r"^\[gddl\][ \t]*$", re.MULTILINE)
_EMPTY = re.compile(r"^job_command[ \t]*=[ \t]*\n", re.MULTILINE)


def home(environ: Mapping[str, str]) -> Path:
    return _expanded(environ.get("AIRFLOW_HOME") or "~/airflow")


def configuration(environ: Mapping[str, str]) -> Path:
    """The file, whether it exists or not."""
    return _expanded(environ.get("AIRFLOW_CONFIG") or str(home(environ) / "airflow.cfg"))


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 - it leaves ~ where a user has no home, as Airflow and boto3 do


def job_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Command of jobs on this machine: Airflow's, where Airflow is installed in this Python.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if VARIABLE not in environ and not (
        configuration(environ).is_file() and installed_version("apache-airflow")  # which imports more
    ):
        return python_command.JOB
    return python_command.job_command(written(environ, _SECTION, _OPTION))


def written(environ: Mapping[str, str], section: str, option: str) -> str:
    """An option as a variable or the file has it; empty: it is not set, or by a command or a secret."""
    variable = f"AIRFLOW__{section}__{option}".upper()
    if variable in environ:
        return environ[variable]
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(configuration(environ), encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):  # Airflow itself reports it
        return ""
    return parser.get(section, option, fallback="")


def set_job_command(environ: Mapping[str, str], command: tuple[str, ...]) -> bool:
    """Write the option into Airflow's configuration file; false: it is set to something else, or there is no file."""
    path, line = configuration(environ), f"{_OPTION} = {json.dumps(list(command))}\n"
    if (there := written(environ, _SECTION, _OPTION).strip()) or not path.is_file():
        return there == json.dumps(list(command))
    text = _EMPTY.sub("", path.read_text(encoding="utf-8"))
    head = _HEAD.search(text)
    if head is None:
        path.write_text(f"{text.rstrip()}\n\n[{_SECTION}]\n{line}", encoding="utf-8")
    else:
        path.write_text(f"{text[: head.end()]}\n{line}{text[head.end() + 1 :]}", encoding="utf-8")
    return True
