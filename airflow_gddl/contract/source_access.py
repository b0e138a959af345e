"""Credentials for the landing root of one source: specifications name them, the environment holds them.

A job uses them for objects below that root alone, and its own credentials for everything else.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.codes import SOURCE_ACCESS_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.s3 import laid_over

if TYPE_CHECKING:
    from airflow_gddl.contract.table_spec import TableSpec

ACCESS = "GDDL_LANDING_ACCESS"
"""The variable that carries the references of a job to its clients and tasks; never a secret."""
ROLE, EXTERNAL_ID = "AWS_GDDL_ROLE", "AWS_GDDL_EXTERNAL_ID"
"""Variables of `environ_of`: the role that a client assumes with the credentials beside them."""
_KEYS = {
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_PROFILE": "profile_name",
    "AWS_REGION": "region_name",
    "AWS_ENDPOINT_URL": "endpoint_url",
    ROLE: "role_arn",
}
"""Variables by their names in the extra of an Airflow connection."""


@dataclass(frozen=True, kw_only=True)
class SourceAccess:
    """How the landing root of a source is reached; either a connection or a role."""

    __pydantic_config__ = STRICT

    source: str
    landing: str
    """`s3://` URL; no other landing root of the metadata overlaps it."""
    aws_conn_id: str | None = None
    """An Airflow connection of type `aws`; a job finds it as `AIRFLOW_CONN_<ID>` in its environment."""
    role_arn: str | None = None
    """A role that is assumed with the credentials of where the job runs."""
    external_id: str | None = None
    """External id that the role's trust policy asks for."""


@dataclass(frozen=True)
class _Announced:
    access: tuple[SourceAccess, ...] = ()


def of_tables(access: Iterable[SourceAccess], specs: Iterable[TableSpec]) -> tuple[SourceAccess, ...]:
    """Those that these tables need, sorted by source."""
    listed = tuple(specs)
    roots = {root for spec in listed for root in (spec.landing, *spec.shard_landings.values())}
    return tuple(sorted((one for one in access if one.landing in roots), key=lambda one: one.source))


def announce(access: tuple[SourceAccess, ...], environ: MutableMapping[str, str]) -> None:
    """Set the references of a job in its environment, in place of any others."""
    environ.pop(ACCESS, None)
    if access:
        environ[ACCESS] = to_json(_Announced(access))


def announced(access: tuple[SourceAccess, ...], environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with these references; the same object where there are none."""
    if not access and ACCESS not in environ:
        return environ
    extended = dict(environ)
    announce(access, extended)
    return extended


def variables_for_tasks(environ: Mapping[str, str]) -> dict[str, str]:
    """What a task on another machine needs of this environment; may hold secrets."""
    known = _parsed(environ.get(ACCESS, ""))
    names = [connection_variable(one.aws_conn_id) for one in known if one.aws_conn_id is not None]
    return {name: environ[name] for name in (ACCESS, *names) if name in environ}


def of_path(path: str, environ: Mapping[str, str]) -> SourceAccess | None:
    """The reference that holds for a path; None: the credentials of the environment itself."""
    for one in _parsed(environ.get(ACCESS, "")):
        if path == one.landing or path.startswith(f"{one.landing}/"):
            return one
    return None


def connection_variable(conn_id: str) -> str:
    """The variable in which Airflow, too, finds a connection."""
    return f"AIRFLOW_CONN_{conn_id.upper()}"


def connection_text(variables: Mapping[str, str]) -> str:
    """`AWS_…` variables as the JSON of an Airflow connection; holds secrets."""
    extra = {field: variables[name] for name, field in _KEYS.items() if variables.get(name)}
    keys = {"login": variables.get("AWS_ACCESS_KEY_ID"), "password": variables.get("AWS_SECRET_ACCESS_KEY")}
    return json.dumps({"conn_type": "aws", **{n: v for n, v in keys.items() if v}, "extra": extra})


def connection_fields(text: str, scheme: str = "") -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Fields (`conn_type`, `login`, `password`) and extra of an Airflow connection, as JSON or as a URI.

    Args:
        scheme: that a URI must have; empty: any.

    Raises:
        ValueError, TypeError, AttributeError: it is none; their texts may show its content.
    """
    if text.startswith("{"):
        fields = json.loads(text)
        extra = fields.get("extra") or {}
        return fields, dict(json.loads(extra) if isinstance(extra, str) else extra)
    url = urlsplit(text)
    if scheme not in ("", url.scheme):
        raise ValueError(f"not the URI of a connection of type {scheme}")
    query = dict(parse_qsl(url.query))
    fields = {"conn_type": url.scheme, "login": unquote(url.username or ""), "password": unquote(url.password or "")}
    return fields, query | json.loads(query.pop("__extra__", "{}"))


def environ_of(access: SourceAccess, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a client of this root: other credentials never take the place of missing ones.

    Raises:
        FatalError: `SOURCE_ACCESS_MISSING`, without any content.
    """
    if access.role_arn is not None:
        variables = {ROLE: access.role_arn, EXTERNAL_ID: access.external_id or ""}
        return {**environ, **{name: value for name, value in variables.items() if value}}
    conn_id = access.aws_conn_id or ""
    name = connection_variable(conn_id)
    text = environ.get(name, "").strip()
    given = _variables_of(text)
    if given is None or bool(given.get("AWS_ACCESS_KEY_ID")) != bool(given.get("AWS_SECRET_ACCESS_KEY")):
        problem = "is not an Airflow connection in JSON or as a URI, with both login and password or neither"
        raise _missing(access, f"{name} {problem if text else 'is not set where this runs'}")
    if not any(given.get(one) for one in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", ROLE)):
        raise _missing(access, f"{name} holds neither keys nor a profile nor a role")
    return laid_over(environ, {name: value for name, value in given.items() if value})


def _missing(access: SourceAccess, what: str) -> FatalError:
    remedy = f"create the connection {access.aws_conn_id} (type aws) in Airflow, or set the variable where jobs run"
    return FatalError(
        SOURCE_ACCESS_MISSING,
        f"no credentials for source {access.source}: {what}",
        where=access.landing,
        remedy=remedy,
    )


def _variables_of(text: str) -> dict[str, str] | None:
    """`AWS_…` variables of a connection; None: not readable."""
    try:
        fields, extra = connection_fields(text, "aws")
        service = (extra.get("service_config") or {}).get("s3") or {}
        variables = {name: extra.get(field) for name, field in _KEYS.items()}
        variables["AWS_ENDPOINT_URL"] = service.get("endpoint_url") or variables["AWS_ENDPOINT_URL"]
        variables["AWS_ACCESS_KEY_ID"] = fields.get("login") or extra.get("aws_access_key_id")
        variables["AWS_SECRET_ACCESS_KEY"] = fields.get("password") or extra.get("aws_secret_access_key")
        variables[EXTERNAL_ID] = (extra.get("assume_role_kwargs") or {}).get("ExternalId") or extra.get("external_id")
    except (ValueError, AttributeError, TypeError):
        return None  # without a cause, which might show the content
    return {name: str(value) for name, value in variables.items() if value}


@functools.lru_cache(maxsize=32)
def _parsed(text: str) -> tuple[SourceAccess, ...]:
    """Parse the credentials that the environment announces; empty text means none.

    Raises:
        FatalError: `SPEC_INVALID`.
    """
    return from_json(_Announced, text).access if text else ()
