"""`docker-compose.yaml` as compose reads it: variables replaced; commands and environment as the services get them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yaml"
SECRETS = tuple(re.findall(r"^([A-Z0-9_]+)=$", (ROOT / ".env.example").read_text(), re.MULTILINE))
"""Variables that `.env.example` leaves empty."""
_VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_]\w*)(?::([?-])([^}]*))?\})")


class MissingError(Exception):
    """A variable that must be set is not; compose refuses to start."""


@dataclass(frozen=True, kw_only=True)
class Service:
    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    settings: Mapping[str, Any]


def written() -> dict[str, Any]:
    """The file's own content, nothing replaced."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def services(variables: Mapping[str, str]) -> dict[str, Service]:
    """
    Raises:
        MissingError: as compose would refuse.
    """
    found = interpolated(written(), variables)["services"]
    return {
        name: Service(
            name=name,
            command=tuple(each.get("command", ())),
            environ={key: str(value) for key, value in each.get("environment", {}).items()},
            settings=each,
        )
        for name, each in found.items()
    }


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: interpolated(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, variables) for item in value]
    return _VARIABLE.sub(lambda match: _replaced(match, variables), value) if isinstance(value, str) else value


def _replaced(match: re.Match[str], variables: Mapping[str, str]) -> str:
    dollar, name, how, other = match.groups()
    if dollar:
        return "$"
    given = variables.get(name, "")
    if not given and how == "?":
        raise MissingError(f"{name}: {other}")
    return given or (other if how == "-" else "")


def example() -> dict[str, str]:
    """`.env.example`, filled in."""
    lines = (ROOT / ".env.example").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if re.match(r"[A-Z]", line))
    filled = {name: value or f"{name.lower()}-for-tests" for name, value in pairs}
    return {**filled, "AIRFLOW_FERNET_KEY": base64.urlsafe_b64encode(bytes(32)).decode()}
