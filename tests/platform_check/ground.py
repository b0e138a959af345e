"""A project on a local folder or in a bucket, on which checks are made."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_gddl.cli import context, metadata
from airflow_gddl.cli.context import CliContext
from airflow_gddl.platform_check import course
from airflow_gddl.platform_check.checks import Outcome
from airflow_gddl.platform_check.place import Bounds, CheckContext, context_of

SETTINGS: Mapping[str, Any] = {"runner": "local"}


@dataclass(frozen=True)
class Ground:
    """Attributes:
    root: a local folder of the test.
    store: URL of a prefix; empty: the folder.
    environ: variables beside this process's.
    settings: of gddl.yaml, instead of the usual ones.
    """

    root: Path
    store: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lake(self) -> str:
        return f"{self.store or self.root}/lake"

    @property
    def landing(self) -> str:
        return f"{self.store or self.root}/landing"

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    def write(self) -> None:
        """The project, with a table that has no files."""
        if not self.store:
            Path(self.landing).mkdir(exist_ok=True)
        (self.metadata / "tables").mkdir(parents=True, exist_ok=True)
        settings = {"landing": self.landing, "lake": self.lake, **SETTINGS, **self.settings}
        (self.metadata / "gddl.yaml").write_text(json.dumps(settings))
        (self.metadata / "tables" / "t.yaml").write_text("tables: [{table: shop.t, keys: [id]}]\n")

    @property
    def cli(self) -> CliContext:
        return replace(context.real(), environ={**os.environ, **self.environ})

    def context(self, **changes: Any) -> CheckContext:
        """What checks work with.

        Args:
            changes: fields of it; `minutes` of its bounds.
        """
        self.write()
        bounds = Bounds(minutes=changes.pop("minutes", 5.0))
        cli = changes.get("cli", self.cli)
        made = context_of(cli, metadata.read(cli, str(self.metadata)), bounds, name="id-1")
        return replace(made, poll_seconds=0.05, claim_seconds=0.0, **changes)


def outcomes(made: CheckContext, *wanted: str) -> dict[str, Outcome]:
    """Outcomes of these checks, all if none is named, with the removal."""
    taken: list[Outcome] = []
    course.everything(made, taken.append, wanted or None)
    return {one.check: one for one in [*taken, course.removed(made)]}


def paths(store: Any, folder: str) -> list[str]:
    return sorted(one.path for one in store.list(folder))
