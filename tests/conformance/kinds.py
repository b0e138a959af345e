"""The writers that are modelled, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.delivery import Delivery
from tests.conformance.history import EVENTS, History, Kind
from tests.conformance.writers import dms


@dataclass(frozen=True)
class Writer:
    """Attributes:
    settings: values of each setting, the usual one first.
    columns: kinds of columns that its source has.
    write: the files of a history under such settings.
    refusal: why settings and events can't be combined; empty: they can.
    """

    settings: Mapping[str, tuple[Any, ...]]
    columns: tuple[Kind, ...]
    write: Callable[[History, Mapping[str, Any]], Delivery]
    refusal: Callable[[Mapping[str, Any]], str]

    @property
    def factors(self) -> Mapping[str, tuple[Any, ...]]:
        return {**self.settings, **EVENTS}


KINDS: Mapping[str, Writer] = {
    "dms": Writer(dms.SETTINGS, dms.KINDS, dms.write, dms.refusal),
}
