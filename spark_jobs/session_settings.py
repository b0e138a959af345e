"""Size of the embedded Spark; apart from the session, so that naming it imports no Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SessionSettings:
    """Size of the embedded Spark.

    Attributes:
        cores: threads of the local master.
        memory: JVM heap, e.g. `4g`.
        verbose: let Spark's own log through.
        brief: the job is short and its data small: compile quickly rather than well.
    """

    cores: int = 2
    memory: str = "4g"
    verbose: bool = False
    brief: bool = False
