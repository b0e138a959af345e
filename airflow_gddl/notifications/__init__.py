"""Notifiers of `[gddl] alert_notifiers`: `webhook`, and any class of Airflow's providers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract.errors import MetadataError

OPTION = "[gddl] alert_notifiers"
_WEBHOOK = "webhook"


def make_notifier(name: str, arguments: Mapping[str, Any]) -> Any:
    """A notifier by its name, or by the dotted path of a class of any Airflow provider, which checks its own arguments.

    Raises:
        MetadataError: `NOTIFIER_UNKNOWN`; `OPTION_INVALID`: arguments that it does not have.
        ImportError, AttributeError, TypeError: as the class of a provider.
    """
    if name == _WEBHOOK and [*arguments] != ["connection"]:
        what = f"arguments of {name}: {', '.join(sorted(arguments)) or 'none'}"
        raise MetadataError("OPTION_INVALID", what, where=OPTION, remedy="write its `connection`, and nothing else")
    if name != _WEBHOOK and "." not in name:
        what, remedy = f"no notifier {name!r}", f"write {_WEBHOOK}, or the path of a notifier's class"
        raise MetadataError("NOTIFIER_UNKNOWN", what, where=OPTION, remedy=remedy)
    path = "airflow_gddl.notifications.webhook.GddlNotifier" if name == _WEBHOOK else name
    module, _, attribute = path.rpartition(".")
    return getattr(importlib.import_module(module), attribute)(**arguments)
