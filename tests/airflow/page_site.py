"""The page's application over a metadata folder and a lake."""

from __future__ import annotations

import importlib
from typing import Any

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.compiled.cache import CompiledSettings
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.tools.page.app import build_app
from airflow_gddl.tools.page.responses import PageSource
from tests.airflow.stage import Stage

NOW = 1_700_000_000.0
PACK = "gddl_pack.shop.small.1"


class Site:
    """The page's application over a metadata folder and a lake."""

    def __init__(self, stage: Stage) -> None:
        testing = importlib.import_module("fastapi.testclient")
        self.stage, self.now = stage, [NOW]
        settings = CompiledSettings(
            metadata=str(stage.metadata), cache=stage.root / "page", environ={}, clock=lambda: self.now[0]
        )
        self.source = PageSource(lambda: CompiledMetadata.current(settings), clock=lambda: self.now[0], patience=0.0)
        self.app = build_app(self.source)
        self.client: Any = testing.TestClient(self.app)

    def ran(self, table: str, *results: dict[str, Any]) -> None:
        recorder = StateRecorder(self.roots, PACK, (), lambda: self.now[0])
        for given in results:
            recorder.take(JobResult(table=table, **given), ("manual__1", "initial_load"))
        recorder.flush()

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.stage.landing), lake=str(self.stage.lake))
