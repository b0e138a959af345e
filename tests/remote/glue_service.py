"""AWS Glue as far as the runner asks it, behind a real client of boto3; a run is a process of this machine.

Every request passes botocore's own model on its way here. moto has no `BatchStopJobRun` and no `UpdateJob`, and runs
nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse

from airflow_gddl.runners.glue.job_files import ENTRY

Answer = Mapping[str, Any]


class RefusedError(Exception):
    """Attributes:
    args: the service's code, and its words.
    """


@dataclass
class Run:
    """One run of a job.

    Attributes:
        state: what the service says; null: what the process says.
    """

    id: str
    job: str
    arguments: dict[str, str]
    process: subprocess.Popen[bytes] | None
    state: str | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    stopping: bool = False

    def answer(self) -> Answer:
        return {
            "Id": self.id,
            "JobName": self.job,
            "Arguments": self.arguments,
            "JobRunState": self.state or self._of_process(),
            "StartedOn": self.started,
            "LogGroupName": "/aws-glue/jobs",
        }

    def _of_process(self) -> str:
        status = self.process.poll() if self.process else 0
        if status is None:
            return "STOPPING" if self.stopping else "RUNNING"
        if self.stopping and status:
            return "STOPPED"
        return "FAILED" if status else "SUCCEEDED"


@dataclass
class GlueService:
    """Attributes:
    folder: where the script lies.
    runs_jobs: whether runs are processes; else they have ended well when they are started.
    holds_jobs: processes do nothing until they are stopped.
    refuses: by operation, the code it is answered with.
    """

    folder: Path
    runs_jobs: bool = True
    holds_jobs: bool = False
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    refuses: dict[str, str] = field(default_factory=dict)

    def attach(self, client: Any) -> Any:
        client.meta.events.register("before-call.glue", self._answer)
        return client

    def client(self) -> Any:
        return self.attach(boto3.client("glue", region_name="eu-west-1"))

    def close(self) -> None:
        for run in self.runs:
            if run.process is not None and run.process.poll() is None:
                run.process.kill()
                run.process.wait()

    def _answer(self, model: Any, params: Mapping[str, Any], **_: Any) -> tuple[AWSResponse, Answer]:
        name = str(model.name)
        self.calls.append(name)
        asked = json.loads(params["body"])
        try:
            self._refuse(name)
            return _response(200), {**getattr(self, f"_{name}")(**asked), "ResponseMetadata": {"HTTPStatusCode": 200}}
        except RefusedError as error:
            said = {"Code": error.args[0], "Message": error.args[1]}
            return _response(400), {"Error": said, "ResponseMetadata": {"HTTPStatusCode": 400}}

    def _refuse(self, name: str) -> None:
        if name in self.refuses:
            raise RefusedError(self.refuses[name], "refused")

    def _CreateJob(self, Name: str, **settings: Any) -> Answer:  # noqa: N802, N803 - Glue's names
        if Name in self.jobs:
            raise RefusedError("AlreadyExistsException", Name)
        self.jobs[Name] = {"Name": Name, **settings}
        return {"Name": Name}

    def _GetJob(self, JobName: str) -> Answer:  # noqa: N802, N803 - Glue's names
        return {"Job": self._job(JobName)}

    def _StartJobRun(self, JobName: str, Arguments: dict[str, str]) -> Answer:  # noqa: N802, N803 - Glue's names
        arguments = {**self._job(JobName).get("DefaultArguments", {}), **Arguments}
        run = Run(f"jr_{len(self.runs)}", JobName, Arguments, self._started(JobName, arguments))
        self.runs.append(run)
        return {"JobRunId": run.id}

    def _GetJobRun(self, JobName: str, RunId: str) -> Answer:  # noqa: N802, N803 - Glue's names
        return {"JobRun": self._run(JobName, RunId).answer()}

    def _GetJobRuns(self, JobName: str, NextToken: str = "", **_: Any) -> Answer:  # noqa: N802, N803 - Glue's names
        """Pages of two, newest first."""
        found = [run.answer() for run in reversed(self.runs) if run.job == JobName]
        at = int(NextToken or 0)
        more = {"NextToken": str(at + 2)} if len(found) > at + 2 else {}
        return {"JobRuns": found[at : at + 2], **more}

    def _BatchStopJobRun(self, JobName: str, JobRunIds: list[str]) -> Answer:  # noqa: N802, N803 - Glue's names
        stopped, errors = [], []
        for number in JobRunIds:
            run = next((run for run in self.runs if (run.job, run.id) == (JobName, number)), None)
            if run is None or run.answer()["JobRunState"] not in ("RUNNING", "STARTING", "WAITING"):
                errors.append({"JobRunId": number, "ErrorDetail": {"ErrorCode": "InvalidInputException"}})
                continue
            run.stopping = True
            run.state = "STOPPED" if run.state else None
            if run.process is not None:
                run.process.terminate()
            stopped.append({"JobName": JobName, "JobRunId": number})
        return {"SuccessfulSubmissions": stopped, "Errors": errors}

    def _job(self, name: str) -> dict[str, Any]:
        if name not in self.jobs:
            raise RefusedError("EntityNotFoundException", f"Job {name} not found.")
        return self.jobs[name]

    def _run(self, job: str, number: str) -> Run:
        found = next((run for run in self.runs if (run.job, run.id) == (job, number)), None)
        if found is None:
            raise RefusedError("EntityNotFoundException", f"Job Run not found: {number}.")
        return found

    def _started(self, job: str, arguments: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """As Glue starts a script: the arguments of the run and of the job, and its own."""
        if not self.runs_jobs:
            return None
        script = self.folder / "gddl_glue.py"
        script.write_text("import time; time.sleep(600)" if self.holds_jobs else ENTRY)
        words = [word for name, value in arguments.items() for word in (name, value)]
        command = [sys.executable, "-P", str(script), "--JOB_NAME", job, "--JOB_RUN_ID", "jr", *words]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _response(status: int) -> AWSResponse:
    return AWSResponse("https://glue", status, {}, None)
