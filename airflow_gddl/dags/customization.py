"""Customization of all DAGs of a DAG file, beyond the metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import DAG

from airflow_gddl import configuration
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.notifications.webhook import GddlNotifier

OnDag = Callable[[DAG], object]
_ON_FAILURE = "on_failure_callback"


@dataclass(frozen=True, kw_only=True)
class Customization:
    """Arguments of `build_dags` and `build_upkeep_dags`.

    Raises:
        MetadataError: `OPTION_INVALID`: there is no such time zone.

    Attributes:
        default_args: Airflow's, for every task. They take precedence over section [gddl] of Airflow's configuration,
            not over the metadata; a failure callback is called beside that of `notify_connection`.
        on_dag: called with each DAG when it is complete; its result is not used.
        timezone: IANA name of the zone that cron lines and presets are in.
        paused: whether new DAGs start paused; null: as `[gddl] paused_upon_creation` says, else Airflow.
    """

    default_args: Mapping[str, Any] = field(default_factory=dict)
    on_dag: OnDag | None = None
    timezone: str = "UTC"
    paused: bool | None = None

    def __post_init__(self) -> None:
        _ = self.start

    @cached_property
    def start(self) -> datetime:
        """Start date of DAGs: any fixed past moment, since nothing in a DAG may depend on when it is parsed."""
        try:
            return datetime(2024, 1, 1, tzinfo=ZoneInfo(self.timezone))
        except (KeyError, OSError, ValueError) as error:  # unknown, a folder of the database, no name at all
            where, remedy = "timezone of build_dags", "use a name of the IANA database, e.g. Europe/Berlin"
            what = f"no such time zone: {self.timezone!r:.80}"
            raise MetadataError("OPTION_INVALID", what, where=where, remedy=remedy) from error

    @property
    def starts_paused(self) -> bool | None:
        """Null: as `[core] dags_are_paused_at_creation` says."""
        if self.paused is not None or not configuration.text("paused_upon_creation"):
            return self.paused
        return configuration.is_on("paused_upon_creation")

    def task_defaults(self) -> dict[str, Any]:
        """Arguments of every task: those of section [gddl] that `default_args` leaves out, and the failure callbacks.

        Raises:
            MetadataError: `OPTION_INVALID`.
        """
        configured: dict[str, Any] = {
            "retries": int(configuration.number("retries")),
            "retry_delay": timedelta(seconds=configuration.number("retry_delay_seconds")),
            "weight_rule": "absolute",
        }
        found = {name: value for name, value in configured.items() if name not in self.default_args}
        connection = configuration.text("notify_connection") or None
        if connection is not None:
            found[_ON_FAILURE] = [*_listed(self.default_args.get(_ON_FAILURE)), GddlNotifier(connection=connection)]
        return found

    def complete(self, dag: DAG) -> DAG:
        if self.on_dag is not None:
            self.on_dag(dag)
        return dag


def _listed(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
