"""An S3 server that denies an account all that its policies don't allow: versitygw with its IAM server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from tests.s3.gateway import Gateway, end_with_parent, free_port, wait_for_port

ROOT = Path(__file__).parents[2]
LANDING, LAKE = "company-landing", "company-lake"
_BLOCK = re.compile(r"<!-- role: (\w+) -->\n```json\n(.*?)```", re.DOTALL)
Policy = Mapping[str, Any]


def policies_of_page() -> dict[str, Policy]:
    """Policies of docs/permissions.md, by role."""
    page = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    return {role: json.loads(text) for role, text in _BLOCK.findall(page)}


@dataclass(frozen=True)
class RestrictedServer:
    """A running server with the two buckets of the page.

    Attributes:
        gateway: with the keys of its owner, who may do everything.
        iam_endpoint: of the server that keeps accounts and policies.
    """

    gateway: Gateway
    iam_endpoint: str

    def account(self, name: str, policies: Sequence[Policy]) -> dict[str, str]:
        """Environment of a new account with these policies and nothing else."""
        iam = boto3.client(
            "iam", endpoint_url=self.iam_endpoint, region_name="us-east-1", aws_access_key_id=self.gateway.access,
            aws_secret_access_key=self.gateway.secret,
        )  # fmt: skip
        iam.create_user(UserName=name)
        keys = iam.create_access_key(UserName=name)["AccessKey"]
        for number, policy in enumerate(policies):
            iam.put_user_policy(UserName=name, PolicyName=f"p{number}", PolicyDocument=json.dumps(policy))
        return {
            **self.gateway.environ, "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        }  # fmt: skip


@contextmanager
def restricted(program: Path, root: Path) -> Iterator[RestrictedServer]:
    """Both servers, until the block ends."""
    for folder in (f"buckets/{LANDING}", f"buckets/{LAKE}", "sidecar", "iam"):
        (root / folder).mkdir(parents=True)
    gateway, iam = Gateway(f"http://127.0.0.1:{free_port()}"), f"127.0.0.1:{free_port()}"
    environ = {**os.environ, "ROOT_ACCESS_KEY": gateway.access, "ROOT_SECRET_KEY": gateway.secret}
    with tempfile.TemporaryDirectory(prefix="gddl-iam-") as short:  # the path of a socket has 107 characters at most
        socket = str(Path(short) / "iam.sock")
        address = gateway.endpoint.removeprefix("http://")
        servers = (
            (iam, ["iam", "--dir", str(root / "iam"), "--private-ports", socket]),
            (address, [
                "--iam-standalone-endpoint", socket, "posix", "--sidecar", str(root / "sidecar"), str(root / "buckets"),
            ]),
        )  # fmt: skip
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for port, arguments in servers:
                log = root / f"{len(processes)}.log"
                with log.open("w") as output:
                    process = subprocess.Popen(
                        [str(program), "--port", port, "--quiet", *arguments], env=environ, stdout=output,
                        stderr=output, preexec_fn=end_with_parent,  # noqa: PLW1509 - as in `gateway.serving`
                    )  # fmt: skip
                processes.append(process)
                wait_for_port(process, port, log)
            yield RestrictedServer(gateway, f"http://{iam}")
        finally:
            for process in processes:
                process.kill()
                process.wait()
