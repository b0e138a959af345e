"""How processes of Python start and end.

They start without the working directory on the module path: a user's folder `spark_jobs/` there would shadow this
project's package.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from typing import NoReturn

from airflow_gddl.contract.codes import OPTION_INVALID
from airflow_gddl.contract.errors import MetadataError


def module_command(name: str, *arguments: str) -> tuple[str, ...]:
    """Command that runs a module with this Python."""
    return (sys.executable, "-P", "-m", name, *arguments)


JOB = module_command("spark_jobs.main")
"""Program and first arguments of the embedded job."""


def job_command(written: str) -> tuple[str, ...]:
    """Program and first arguments of the embedded job, as `[gddl] job_command` names them; empty: `JOB`.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    if not written.strip():
        return JOB
    try:
        command = json.loads(written)
    except ValueError:
        command = None
    if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
        return tuple(command)
    what, remedy = f"not a JSON list of texts: {written!r:.80}", 'write e.g. ["/opt/gddl-jobs/bin/gddl-job"]'
    raise MetadataError(OPTION_INVALID, what, where="[gddl] job_command", remedy=remedy)


def exit_process(status: int) -> NoReturn:
    """End this process with a status as `sys.exit` does: threads are awaited, exit functions called, output is flushed.

    The interpreter is not finalized. A thread of Arrow that reads a Python file then asks for the interpreter's lock,
    which aborts a process whose work is done (apache/arrow#34314).
    """
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - what the interpreter calls before it finalizes
    atexit._run_exitfuncs()  # noqa: SLF001 - as above
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = status or _OUTPUT_LOST
    os._exit(status)


_OUTPUT_LOST = 120
"""The interpreter's own status."""
