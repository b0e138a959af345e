"""Scenarios' files in a bucket."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import obstore

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.s3 import split
from airflow_gddl.contract.spec import Roots
from airflow_gddl.stores import Storage
from tests.s3.conftest import Place
from tests.scenarios.model import RunStep, Scenario
from tests.scenarios.staging import land


@dataclass(frozen=True)
class BucketGround:
    """See `Ground`.

    Attributes:
        context: a local folder in which files are made before they are sent.
    """

    place: Place
    context: Path
    storage: Storage = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage", Storage(environ=self.place.environ))

    @property
    def roots(self) -> Roots:
        return self.place.roots

    def land(self, scenario: Scenario, run: RunStep) -> None:
        folder = self.context / scenario.name
        before = set(_names(folder))
        land(scenario, run, folder)
        _, key = split(Layout.of(self.roots, scenario.spec()).landing)
        for name in before - set(_names(folder)):
            obstore.delete(self.place.store, f"{key}/{name}")
        for name in sorted({file.name for file in run.files}):
            obstore.put(self.place.store, f"{key}/{name}", folder / name)


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
