"""Settings from environment variables, so that one metadata folder serves development and production.

`GDDL_LANDING`, `GDDL_LAKE`, `GDDL_RUNNER`, `GDDL_AWS_CONN_ID` and `GDDL_DAG_PREFIX` hold text.
`GDDL_DEFAULTS__<FIELD>`, `GDDL_TIERS__<TIER>__<FIELD>`, `GDDL_RUNNERS__<RUNNER>__<FIELD>` and
`GDDL_SOURCES__<SOURCE>__<FIELD>`, `GDDL_CATALOGS__<CATALOG>__<FIELD>` hold a YAML scalar or a `[...]`/`{...}` in one
line. An empty variable counts as unset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.spec_problem import FieldPath
from airflow_gddl.metadata import yaml_file
from airflow_gddl.metadata.values import DocumentError
from airflow_gddl.metadata.variables import PREFIX

ROOT_FIELDS = ("landing", "lake", "runner", "aws_conn_id", "dag_prefix")
_SECTIONS = {"defaults": 2, "tiers": 3, "runners": 3, "sources": 3, "catalogs": 3}


@dataclass(frozen=True)
class Override:
    """One variable: its settings path (lower case) and value."""

    variable: str
    path: tuple[str, ...]
    value: Any


class OverrideError(Exception):
    """A variable that can't be used; the text never holds its value."""

    code = "OVERRIDE_INVALID"

    def __init__(self, variable: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.variable = variable
        self.message = message
        self.remedy = remedy


def overrides(environ: Mapping[str, str]) -> Iterator[Override]:
    """The overrides an environment holds, sorted by variable.

    Raises:
        OverrideError: a section that is not known, a name without its field, or a value that can't be read.
    """
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        parts = tuple(part.lower() for part in variable.removeprefix(PREFIX).split("__"))
        text = environ[variable].strip()
        if not text:
            continue
        if parts in {(name,) for name in ROOT_FIELDS}:
            yield Override(variable, parts, text)
        elif parts[0] in _SECTIONS or len(parts) > 1:
            _check_form(variable, parts)
            yield Override(variable, parts, _value(variable, text))


def _check_form(variable: str, parts: tuple[str, ...]) -> None:
    if parts[0] not in _SECTIONS:
        known = ", ".join(f"{PREFIX}{name.upper()}__" for name in _SECTIONS)
        raise OverrideError(variable, "names no section of gddl.yaml", f"start it with {known} or unset it")
    if len(parts) < _SECTIONS[parts[0]] or not all(parts):
        form = {2: "<FIELD>", 3: "<NAME>__<FIELD>"}[_SECTIONS[parts[0]]]
        raise OverrideError(variable, "names no field", f"write {PREFIX}{parts[0].upper()}__{form}")


def _value(variable: str, text: str) -> Any:
    # `@daily` and `*/5 * * * *` are not valid unquoted YAML scalars, but unambiguous here.
    if text[0] not in "[{\"'":
        return yaml_file.scalar(text)
    try:
        return yaml_file.read(text)
    except (DocumentError, UnicodeError) as error:
        raise OverrideError(variable, "not a YAML value", "check quotes and brackets") from error


def apply(settings: dict[str, Any], override: Override) -> FieldPath:
    """Set one value in a tree of mappings, in place; the path it has there.

    Names match existing ones without case, `_` standing for any character a variable's name can't hold.
    """
    here, path = settings, []
    for part in override.path[:-1]:
        name = _match(part, here)
        if not isinstance(here.get(name), dict):
            here[name] = {}
        here = here[name]
        path.append(name)
    last = _match(override.path[-1], here)
    here[last] = override.value
    return (*path, last)


def _match(part: str, there: Mapping[str, Any]) -> str:
    return next((name for name in there if re.sub(r"[^a-z0-9]", "_", name.lower()) == part), part)
