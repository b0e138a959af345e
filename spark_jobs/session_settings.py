"""Size of the embedded Spark; apart from the session, so that naming it imports no Spark."""

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
        s3: a root is on S3, so that its JARs are needed.
        extra: Spark settings (`spark.…`) beyond these.
    """

    cores: int = 2
    memory: str = "4g"
    verbose: bool = False
    brief: bool = False
    s3: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
