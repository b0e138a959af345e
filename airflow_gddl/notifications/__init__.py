"""Notifiers by name, for `[gddl] alert_notifiers`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract.errors import invalid_option

OPTION = "[gddl] alert_notifiers"
WEBHOOK = "webhook"


def make_notifier(name: str, arguments: Mapping[str, Any]) -> Any:
    """The notifier `webhook`, or one by the path of a class of any Airflow provider, which checks its own arguments.

    Raises:
        MetadataError: `OPTION_INVALID`; `OPTION_INVALID`: arguments that it does not have.
        ImportError, AttributeError, TypeError: as the class of a provider.
    """
    if "." not in name and name != WEBHOOK:
        remedy = f"write {WEBHOOK}, or the path of a notifier's class"
        raise invalid_option(f"no notifier {name!r}", remedy, OPTION)
    if name == WEBHOOK and [*arguments] != ["connection"]:
        what = f"arguments of {name}: {', '.join(sorted(arguments)) or 'none'}"
        raise invalid_option(what, "write its `connection`, and nothing else", OPTION)
    path = f"{__name__}.webhook.GddlNotifier" if name == WEBHOOK else name
    module, _, attribute = path.rpartition(".")
    return getattr(importlib.import_module(module), attribute)(**arguments)
