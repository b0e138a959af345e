"""How Python is started: never with the working directory among the places that modules come from.

A user's own folder `spark_jobs/` there would be taken for this project's package.
"""

from __future__ import annotations

import sys


def module_command(name: str, *arguments: str) -> tuple[str, ...]:
    """This Python, running a module."""
    return (sys.executable, "-P", "-m", name, *arguments)


JOB = module_command("spark_jobs.main")
"""Program and first arguments of the embedded job."""
