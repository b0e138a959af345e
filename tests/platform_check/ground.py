"""A project on a local folder or in a bucket, on which checks are made."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from airflow_gddl.cli import context, metadata
from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.tools.platform_check import command, job_checks, storage_checks
from airflow_gddl.tools.platform_check.checks import CheckContext, Outcome
from airflow_gddl.tools.platform_check.job_checks import JobChecks

SETTINGS: Mapping[str, Any] = {"runner": "local"}
STORAGE = tuple(storage_checks.PROBES)
JOBS = ("job.load", "job.cancel", "job.resume", "tables.verify", "tables.rows")


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

    def context(self, *, minutes: float = 20.0, cli: CliContext | None = None, **changes: Any) -> CheckContext:
        """What checks work with.

        Args:
            changes: fields of it.
        """
        self.write()
        cli = cli or self.cli
        return replace(command.context_of(cli, metadata.read(cli, str(self.metadata)), minutes), **changes)


def outcomes(made: CheckContext, *wanted: str) -> dict[str, Outcome]:
    """Outcomes of these checks, with the removal."""
    jobs = JobChecks(made)
    probes = {**storage_checks.PROBES, **job_checks.probes(jobs)}
    found = [*command.outcomes_of(made, {name: probe for name, probe in probes.items() if name in wanted})]
    return {one.check: one for one in [*found, command.removed(made, jobs)]}


@contextmanager
def on_workspace(ground: Ground) -> Iterator[tuple[CheckContext, Any]]:
    """A context whose jobs are processes of the fake workspace of Databricks, and this."""
    from airflow_gddl.runners.databricks.jobs import jobs_of  # noqa: PLC0415 - needs its SDK
    from airflow_gddl.runners.databricks.settings import DatabricksSettings  # noqa: PLC0415 - as above
    from devtools.fake_databricks.server import serving  # noqa: PLC0415 - as above

    own = {"wheel": "/Volumes/main/gddl/airflow_gddl.whl", "node_type": "i3.xlarge", "local_roots": True}
    with serving([sys.executable, "-m", "spark_jobs.main"]) as server:
        login = {"DATABRICKS_HOST": server.workspace.url, "DATABRICKS_TOKEN": server.token}
        with mock.patch.dict(os.environ, {"GDDL_WITHOUT_SPARK": "", **login}):
            for job in jobs_of({"small": TierSpec(tasks="one")}, DatabricksSettings(**own)).values():
                server.workspace.create(job)
            settings = {**ground.settings, "runner": "databricks", "runners": {"databricks": own}, "tiers": {}}
            yield replace(ground, settings=settings).context(), server.workspace
