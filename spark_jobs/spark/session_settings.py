"""Size and place of the job's Spark; a module without the session, so that importing it imports no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SessionSettings:
    """Size of the embedded Spark.

    Attributes:
        cores: threads of the local master.
        memory: JVM heap, e.g. `4g`.
        verbose: let Spark's own log through.
        brief: the job is short and its data small: compile quickly rather than well.
        lasting: the job runs for hours with the same code, so that compiling it pays even for small data.
        s3: a root is on S3, so that its JARs are needed.
        extra: Spark settings (`spark.…`) beyond these.
        start_seconds: how long a cluster may take to give a first executor.
        ship_delta: send Delta's JARs to a cluster whose driver is started here.
    """

    cores: int = 2
    memory: str = "4g"
    verbose: bool = False
    brief: bool = False
    lasting: bool = False
    s3: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 600.0
    ship_delta: bool = True


def is_on_a_cluster(environ: Mapping[str, str]) -> bool:
    """Started by spark-submit, on Databricks, for a Spark Connect server, or given a master that isn't local."""
    master = environ.get("GDDL_SPARK_MASTER", "local")
    started = ("PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE")
    return not master.startswith("local") or any(name in environ for name in started)
