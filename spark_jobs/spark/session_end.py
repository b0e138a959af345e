"""Whether the Spark of a session has ended, and how PySpark drops it, so that another can be started here."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext


def is_gone(session: SparkSession) -> bool:
    """Its Java process does not answer any more, or has stopped the Spark in it.

    What can't be known counts as there: platforms refuse such questions, and a remote Spark has no Java process here.
    """
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return False
    java = context._jsc  # noqa: SLF001 - PySpark has no public way to ask
    if java is None:
        return True
    # A process that dies while it is asked gives an answer that says nothing; the next question decides.
    found = _is_stopped(java)
    return bool(_is_stopped(java) if found is None else found)


def _is_stopped(java: Any) -> bool | None:
    """Null where it can't be known."""
    try:
        return bool(java.sc().isStopped())
    except (OSError, Py4JNetworkError):  # py4j lets through what the socket says
        return True
    except Exception:  # noqa: BLE001 - see above
        return None


def bury(session: SparkSession) -> None:
    """End what is left of a Java process that was started here, and let the next session start another.

    It is ended before anything else may be started: what half lives could still write. Objects of the old process stay
    bound to its connection, whose secret no other process knows, so that a thread that still holds them only fails.
    """
    context: Any = session.sparkContext
    gateway = context._gateway  # noqa: SLF001 - here and below: PySpark keeps one Spark a process, and knows of no end
    process = gateway.__dict__.get("proc")
    if process is not None:
        process.kill()
        process.wait()
        with suppress(OSError):
            process.stdin.close()
    context._jsc = None  # noqa: SLF001 - else it would ask the process to stop
    context.stop()
    with suppress(Exception):
        gateway.shutdown()
    pyspark: Any = SparkContext
    with pyspark._lock:  # noqa: SLF001 - as above
        pyspark._gateway = pyspark._jvm = pyspark._active_spark_context = None  # noqa: SLF001 - as above
    sessions: Any = SparkSession
    sessions._instantiatedSession = sessions._activeSession = None  # noqa: SLF001 - as above
    contexts: Any = SQLContext
    contexts._instantiatedContext = None  # noqa: SLF001 - as above
