"""Those who give tokens, on the loopback: Databricks, Microsoft Entra, a virtual machine of Azure, Kubernetes, AWS STS.

Clients connect to the real names, and are led here; any other name is refused. TLS is real, by a CA of its own.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

WORKSPACE = "adb-1.azuredatabricks.net"
ENTRA = "login.microsoftonline.com"
MACHINE = "169.254.169.254"
KUBERNETES = "kubernetes.default.svc"
STS = "sts.eu-west-1.amazonaws.com"
NAMES = (WORKSPACE, ENTRA, KUBERNETES, STS)
_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request.

    Attributes:
        sent: parameters of its URL and its body.
    """

    host: str
    path: str
    headers: Mapping[str, str]
    sent: Mapping[str, str]


@dataclass
class TokenServices:
    """What is served.

    Attributes:
        authority: file with the CA's certificate.
        ports: of TLS and of plain HTTP.
        asked: requests, oldest first.
        seconds: how long tokens hold.
        refusing: endpoints that answer with an error, by their path, e.g. `{"/oidc/v1/token": 401}`.
    """

    authority: Path
    ports: tuple[int, int] = (0, 0)
    asked: list[Asked] = field(default_factory=list)
    seconds: int = _SECONDS
    refusing: dict[str, int] = field(default_factory=dict)

    def led(self, host: str, port: int) -> tuple[str, int]:
        """Where a connection to this address goes.

        Raises:
            ConnectionRefusedError: another name.
        """
        if host in NAMES and port == 443:
            return "127.0.0.1", self.ports[0]
        if host == MACHINE and port == 80:
            return "127.0.0.1", self.ports[1]
        if host == "127.0.0.1":
            return host, port
        raise ConnectionRefusedError(f"{host}:{port} is not served here")

    def to(self, path: str) -> list[Asked]:
        return [one for one in self.asked if one.path == path]

    def answer(self, asked: Asked) -> tuple[int, Any]:
        self.asked.append(asked)
        if status := self.refusing.get(asked.path):
            return status, {"error": "invalid_client"}
        answers: Mapping[str, Callable[[Asked], Any]] = {
            WORKSPACE: self._workspace, ENTRA: self._entra, MACHINE: self._machine, KUBERNETES: self._kubernetes,
            STS: self._sts,
        }  # fmt: skip
        found = answers[asked.host](asked)
        return (200, found) if found is not None else (404, {"error": f"nothing at {asked.path}"})

    def _token(self, value: str) -> dict[str, Any]:
        ends = int(time.time()) + self.seconds
        return {"access_token": value, "token_type": "Bearer", "expires_in": self.seconds, "expires_on": str(ends)}

    def _workspace(self, asked: Asked) -> Any:
        if asked.path == "/api/2.2/jobs/list":
            return {"jobs": [{"job_id": 7, "settings": {"name": asked.sent["name"]}}]}
        if asked.path != "/oidc/v1/token":
            return None
        subject = asked.sent.get("subject_token", "")
        return self._token(
            f"{asked.sent['grant_type'].rpartition(':')[2]} {subject} {len(self.asked)}".replace("  ", " ")
        )

    def _entra(self, asked: Asked) -> Any:
        if asked.path == "/common/discovery/instance":
            return {"tenant_discovery_endpoint": f"https://{ENTRA}/tenant/v2.0/.well-known/openid-configuration",
                    "metadata": []}  # fmt: skip
        if asked.path.endswith("/.well-known/openid-configuration"):
            place = f"https://{ENTRA}/tenant/oauth2/v2.0"
            return {"token_endpoint": f"{place}/token", "authorization_endpoint": f"{place}/authorize",
                    "issuer": f"https://{ENTRA}/tenant/v2.0"}  # fmt: skip
        return self._token(f"entra {asked.sent['scope']}") if asked.path == "/tenant/oauth2/v2.0/token" else None

    def _machine(self, asked: Asked) -> Any:
        if asked.path == "/metadata/instance":
            return {"compute": {"azEnvironment": "AzurePublicCloud"}}
        if asked.path != "/metadata/identity/oauth2/token":
            return None
        if asked.headers.get("Metadata") != "true":  # azure-identity asks so whether anybody is there
            return {"error": "invalid_request"}
        return {**self._token(f"machine {asked.sent['resource']}"), "resource": asked.sent["resource"]}

    def _kubernetes(self, asked: Asked) -> Any:
        where = "/api/v1/namespaces/data/serviceaccounts/default/token"
        return {"status": {"token": "of-the-account"}} if asked.path == where else None

    def _sts(self, asked: Asked) -> str | None:
        action = asked.sent.get("Action", "")
        ends = (datetime.now(UTC) + timedelta(seconds=self.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if action == "GetWebIdentityToken":
            body = f"<WebIdentityToken>of-the-role</WebIdentityToken><Expiration>{ends}</Expiration>"
        elif action.startswith("AssumeRole"):
            body = (
                f"<Credentials><AccessKeyId>ASIA{action}</AccessKeyId><SecretAccessKey>s3cr3t</SecretAccessKey>"
                f"<SessionToken>session</SessionToken><Expiration>{ends}</Expiration></Credentials>"
                "<AssumedRoleUser><AssumedRoleId>A:x</AssumedRoleId><Arn>arn:aws:sts::123456789012:assumed-role/loader/x"
                "</Arn></AssumedRoleUser>"
            )
        else:
            return None
        space = "https://sts.amazonaws.com/doc/2011-06-15/"
        return f'<{action}Response xmlns="{space}"><{action}Result>{body}</{action}Result></{action}Response>'


class _Handler(BaseHTTPRequestHandler):
    services: TokenServices
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        sent = dict(parse_qsl(url.query))
        sent |= json.loads(body) if body.startswith("{") else dict(parse_qsl(body))
        host = (self.headers.get("Host") or "").partition(":")[0]
        asked = Asked(host=host, path=url.path, headers=dict(self.headers.items()), sent=sent)
        status, found = self.services.answer(asked)
        data = found.encode() if isinstance(found, str) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/xml" if isinstance(found, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _serve  # noqa: N815 - the names http.server calls


@contextmanager
def serving(folder: Path) -> Iterator[TokenServices]:
    """The services, until the block ends.

    Args:
        folder: for certificates.
    """
    services = TokenServices(folder / "authority.pem")
    handler = type("Handler", (_Handler,), {"services": services})
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(_certificates(services.authority, folder / "server.pem"))
    with ExitStack() as stack:
        tls, plain = (stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler)) for _ in range(2))
        tls.socket = secured.wrap_socket(tls.socket, server_side=True)
        services.ports = tls.server_port, plain.server_port
        for server in (tls, plain):
            server.daemon_threads = True
            Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            stack.callback(server.shutdown)
        yield services


def _certificates(authority: Path, server: Path) -> Path:
    """Write the CA's certificate, and the server's with its key; returns the latter."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])

    def signed(name: x509.Name, public: Any, extension: x509.ExtensionType, *, critical: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(ca_name, name, public, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        return builder.add_extension(extension, critical=critical).sign(ca_key, hashes.SHA256())

    ca = signed(ca_name, ca_key.public_key(), x509.BasicConstraints(ca=True, path_length=None), critical=True)
    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in NAMES])
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, WORKSPACE)])
    leaf = signed(leaf_name, key.public_key(), names, critical=False)
    pem = serialization.Encoding.PEM
    authority.write_bytes(ca.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    server.write_bytes(private + leaf.public_bytes(pem))
    return server
