"""Notifiers by name, for `[gddl] alert_notifiers`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract.errors import MetadataError

OPTION = "[gddl] alert_notifiers"
_MODULE = "airflow_gddl.notifications.webhook"
NOTIFIERS: Mapping[str, str] = {
    "webhook": f"{_MODULE}.GddlNotifier",
    "slack": f"{_MODULE}.GddlNotifier",
    "teams": f"{_MODULE}.TeamsNotifier",
    "pagerduty": f"{_MODULE}.PagerDutyNotifier",
}
"""Path of the class by name. Each takes `connection`, an Airflow connection whose host is the URL."""


def make_notifier(name: str, arguments: Mapping[str, Any]) -> Any:
    """A notifier by its name, or by the dotted path of a class of any Airflow provider, which checks its own arguments.

    Raises:
        MetadataError: `NOTIFIER_UNKNOWN`; `OPTION_INVALID`: arguments that it does not have.
        ImportError, AttributeError, TypeError: as the class of a provider.
    """
    if "." not in name and name not in NOTIFIERS:
        remedy = "correct the name, or write the path of a notifier's class"
        what = f"no notifier {name!r}; there are {', '.join(NOTIFIERS)}"
        raise MetadataError("NOTIFIER_UNKNOWN", what, where=OPTION, remedy=remedy)
    if name in NOTIFIERS and [*arguments] != ["connection"]:
        what = f"arguments of {name}: {', '.join(sorted(arguments)) or 'none'}"
        raise MetadataError("OPTION_INVALID", what, where=OPTION, remedy="write its `connection`, and nothing else")
    module, _, attribute = NOTIFIERS.get(name, name).rpartition(".")
    return getattr(importlib.import_module(module), attribute)(**arguments)
