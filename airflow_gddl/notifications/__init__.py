"""Notifiers by name, for `[gddl] alert_notifiers`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.extensions import ExtensionPoint

OPTION = "[gddl] alert_notifiers"


@dataclass(frozen=True, kw_only=True)
class NotifierDescriptor:
    """One notifier.

    Attributes:
        notifier: `module:Class` of a `BaseNotifier`, imported when a message is sent. `context` has `gddl_alerts` and
            `gddl_text`.
        arguments: frozen dataclass of its `arguments`, whose fields are passed by name; None: it takes none.
    """

    notifier: str
    arguments: type[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class WebhookArguments:
    """Of `webhook`."""

    __pydantic_config__ = STRICT

    connection: str
    """Airflow connection whose host is the URL."""


WEBHOOK = NotifierDescriptor(notifier="airflow_gddl.notifications.webhook:GddlNotifier", arguments=WebhookArguments)
NOTIFIERS: ExtensionPoint[NotifierDescriptor] = ExtensionPoint(
    what="notifier",
    group="airflow_gddl.notifiers",
    descriptor=NotifierDescriptor,
    built_in={"webhook": WEBHOOK},
    unknown_code="NOTIFIER_UNKNOWN",
    broken_code="NOTIFIER_BROKEN",
)


def make_notifier(name: str, arguments: Mapping[str, Any]) -> Any:
    """A notifier by its name, or by the dotted path of a class of any Airflow provider, which checks its own arguments.

    Raises:
        MetadataError: `NOTIFIER_UNKNOWN`; `OPTION_INVALID`: arguments that it does not have.
        FatalError: `NOTIFIER_BROKEN`.
        ImportError, AttributeError, TypeError: as the class of a provider.
    """
    if "." in name:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)(**arguments)
    descriptor = NOTIFIERS.get(name)
    checked: dict[str, Any] = {}
    if descriptor.arguments is not None:
        try:
            built = decode(descriptor.arguments, dict(arguments))
        except FatalError as error:
            raise MetadataError(
                "OPTION_INVALID",
                f"arguments of {name}{error.where.removeprefix(descriptor.arguments.__name__)}: {error.what}",
                where=OPTION,
            ) from error
        checked = {field: getattr(built, field) for field in descriptor.arguments.__dataclass_fields__}
    elif arguments:
        what = f"notifier {name} takes no arguments, and has {', '.join(sorted(arguments))}"
        raise MetadataError("OPTION_INVALID", what, where=OPTION, remedy="remove them")
    return NOTIFIERS.load(descriptor.notifier)(**checked)
