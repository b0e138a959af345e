"""Builds the arguments of spark-submit for a job; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.sizes import size_bytes
from airflow_gddl.contract.spec import JobSpec, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.metadata.runners.spark_submit import SparkSubmitCompute, SparkSubmitSettings

NAME = "spark_submit"
ENVIRONMENT = "environment"
"""Folder in which an executor finds the unpacked archive."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Resources of a job on a cluster. `overhead`: bytes of an executor beyond its heap; null: Spark's own choice."""

    cores: int
    memory: str
    workers: int
    driver_memory: str
    overhead: int | None = None


def size_of(spec: JobSpec, settings: SparkSubmitSettings) -> Size:
    """Maximum over the tiers of the job's tables."""
    tiers = [spec.tiers[name] for name in sorted({table.size for table in spec.tables}) if name in spec.tiers]
    sizes = [_of_tier(tier, settings) for tier in tiers or [TierSpec()]]
    overheads = [size.overhead for size in sizes if size.overhead is not None]
    return Size(
        cores=max(size.cores for size in sizes),
        memory=max((size.memory for size in sizes), key=size_bytes),
        workers=max(size.workers for size in sizes),
        driver_memory=max((size.driver_memory for size in sizes), key=size_bytes),
        overhead=max(overheads, default=None),
    )


def _of_tier(tier: TierSpec, settings: SparkSubmitSettings) -> Size:
    own = decode(SparkSubmitCompute, dict(tier.compute.get(NAME, {})))
    cores = own.cores or tier.cores
    size = Size(
        cores=cores,
        memory=own.memory or tier.memory,
        workers=own.workers or tier.workers,
        driver_memory=own.driver_memory or settings.driver_memory,
    )
    if own.memory_overhead is not None:
        return replace(size, overhead=size_bytes(own.memory_overhead))
    # Tables of this engine are processed by Python processes, one for each core, outside the heap.
    return replace(size, overhead=cores * size_bytes(tier.delta_rs_memory)) if tier.engine == "delta_rs" else size


def arguments(spec: JobSpec, settings: SparkSubmitSettings, code: Sequence[str]) -> list[str]:
    """Arguments of spark-submit, without the application.

    Args:
        code: archives of Python modules for the executors.
    """
    size = size_of(spec, settings)
    found = ["--master", settings.master, "--deploy-mode", "client", "--name", f"gddl-{spec.run_id}"]
    found += ["--driver-memory", size.driver_memory, "--executor-cores", str(size.cores)]
    found += ["--executor-memory", size.memory]
    lists: Mapping[str, Sequence[str]] = {
        "--jars": settings.jars,
        "--packages": settings.packages,
        "--py-files": code,
        "--archives": [f"{settings.archive}#{ENVIRONMENT}"] if settings.archive else [],
    }
    for option, values in lists.items():
        found += [option, ",".join(values)] if values else []
    for name, value in {**_conf_of(size, settings.master), **settings.conf, **NO_SUBSTITUTION}.items():
        found += ["--conf", f"{name}={_text(value)}"]
    return found


def _conf_of(size: Size, master: str) -> dict[str, str | int | bool]:
    conf: dict[str, str | int | bool] = {"spark.ui.showConsoleProgress": False}
    if master.startswith("spark://"):
        # A standalone cluster derives the number of executors from the cores.
        return {**conf, "spark.cores.max": size.cores * size.workers}
    conf["spark.executor.instances"] = size.workers
    if size.overhead is not None:
        conf["spark.executor.memoryOverhead"] = f"{-(-size.overhead // 1024**2)}m"
    return conf


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
