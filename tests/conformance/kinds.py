"""The writers that are modelled, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.delivery import Delivery
from tests.conformance.history import EVENTS, History, Kind
from tests.conformance.writers import (
    debezium,
    debezium_mongodb,
    debezium_mysql,
    debezium_oracle,
    debezium_postgres,
    debezium_sqlserver,
    dms,
    exports,
)


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


def _debezium(make: type[debezium.Connector], refusal: Callable[[Mapping[str, Any]], str]) -> Writer:
    settings = {**debezium.SETTINGS, **make.settings}
    write = functools.partial(debezium.write, make)
    return Writer(settings, make.kinds, write, lambda case: refusal(case) or debezium.refusal(case))


KINDS: Mapping[str, Writer] = {
    "dms": Writer(dms.SETTINGS, dms.KINDS, dms.write, dms.refusal),
    "exports": Writer(exports.SETTINGS, exports.KINDS, exports.write, exports.refusal),
    "debezium_postgres": _debezium(debezium_postgres.Postgres, debezium_postgres.refusal),
    "debezium_mysql": _debezium(debezium_mysql.MySql, debezium_mysql.refusal),
    "debezium_mongodb": Writer(
        debezium_mongodb.SETTINGS, debezium_mongodb.KINDS, debezium_mongodb.write, debezium_mongodb.refusal
    ),
    "debezium_oracle": _debezium(debezium_oracle.Oracle, debezium_oracle.refusal),
    "debezium_sqlserver": _debezium(debezium_sqlserver.SqlServer, debezium_sqlserver.refusal),
}
