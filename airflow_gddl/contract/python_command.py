"""How processes of Python start and end.

They start without the working directory on the module path: a user's folder `spark_jobs/` there would shadow this
project's package.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def module_command(name: str, *arguments: str) -> tuple[str, ...]:
    """Command that runs a module with this Python."""
    return (sys.executable, "-P", "-m", name, *arguments)


JOB = module_command("spark_jobs.main")
"""Program and first arguments of the embedded job."""


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
