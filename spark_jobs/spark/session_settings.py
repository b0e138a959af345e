"""Size and place of the job's Spark; a module without the session, so that importing it imports no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

STARTED_ELSEWHERE = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION")
"""Variables of a job whose Spark was started by another program."""
WORKER_MEMORY = "spark.gddl.workerMemory"
"""Setting with `SessionSettings.worker_memory`. Spark's own, `spark.executor.pyspark.memory`, writes four lines into
the log for each process that starts."""
LITTLE_WORK = 512 * 1024**2
"""Work (`PendingWork.cost`) that is done sooner by code that is compiled quickly: see docs/decisions/size.md."""


_SMALL_HEAP = ("-XX:GCTimeRatio=4", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30")
"""Collect rather than let the heap grow to `memory`: rows are with the Python processes, which need the memory."""


@dataclass(frozen=True)
class SessionSettings:
    """Size of the embedded Spark.

    Attributes:
        cores: threads of the local master.
        memory: JVM heap, e.g. `4g`.
        worker_memory: bytes of address space of a Python process of Spark on one machine; 0: not limited. On clusters
            containers have limits.
        verbose: let Spark's own log through.
        brief: the job is short and its data small: compile quickly rather than well.
        lasting: the job runs for hours with the same code, so that compiling it pays even for small data.
        single: the job has one table, so that what it has to do is what the session has to do.
        quick_code: compile quickly rather than well, by C1 alone.
        s3: a root is on S3, so that its JARs are needed.
        extra: Spark settings (`spark.…`) beyond these.
        start_seconds: how long a cluster may take to give a first executor.
        ship_delta: send Delta's JARs to a cluster whose driver is started here.
    """

    cores: int = 2
    memory: str = "4g"
    worker_memory: int = 0
    verbose: bool = False
    brief: bool = False
    lasting: bool = False
    single: bool = False
    quick_code: bool = False
    s3: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 600.0
    ship_delta: bool = True

    def java_flags(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """How Java collects and compiles, as far as the environment does not say so: Java refuses two collectors."""
        given = " ".join(environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
        flags: list[str] = []
        if "GC" not in given:
            flags += ["-XX:+UseSerialGC"] if self.brief else _SMALL_HEAP
        if self.quick_code or (self.brief and not self.lasting):
            flags.append("-XX:TieredStopAtLevel=1")
        if (self.quick_code or self.brief) and "CodeCacheSize" not in given:
            # C1 alone has 48 MiB by default. Once they are full, Java compiles no more, and calls fail (InternalError).
            flags.append("-XX:ReservedCodeCacheSize=256m")
        return tuple(flags)

    def suited(self, work: int | None) -> SessionSettings:
        """The settings of a session whose first table has so much to do (`PendingWork.cost`); None: not known."""
        little = self.single and not self.lasting and work is not None and work <= LITTLE_WORK
        return replace(self, quick_code=True) if little else self


def is_on_a_cluster(environ: Mapping[str, str]) -> bool:
    """Started by spark-submit, on Databricks, for a Spark Connect server, or given a master that isn't local."""
    master = environ.get("GDDL_SPARK_MASTER", "local")
    return not master.startswith("local") or any(name in environ for name in STARTED_ELSEWHERE)
