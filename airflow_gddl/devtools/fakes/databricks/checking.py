"""Validates requests against the SDK's types: unknown or dropped fields are refused."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from databricks.sdk.service.jobs import JobsAPI, JobSettings


class Refusal(Exception):  # noqa: N818 - an answer of the API, not a fault of this program
    """An error answer of the API.

    Args:
        status: of HTTP.
        code: `error_code` of the body.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def invalid(message: str) -> Refusal:
    return Refusal(400, "INVALID_PARAMETER_VALUE", message)


def settings_of(body: Mapping[str, Any]) -> JobSettings:
    """A job's settings; nothing of the body is lost on the way into the SDK's type and back."""
    settings: JobSettings = _parsed(JobSettings, body)
    tasks = settings.tasks or []
    clusters = {cluster.job_cluster_key for cluster in settings.job_clusters or ()}
    environments = {environment.environment_key for environment in settings.environments or ()}
    for task in tasks:
        if task.job_cluster_key and task.job_cluster_key not in clusters:
            raise invalid(f"task {task.task_key} names job cluster {task.job_cluster_key}, which the job does not have")
        if task.environment_key and task.environment_key not in environments:
            raise invalid(f"task {task.task_key} names environment {task.environment_key}, which the job does not have")
    return settings


def arguments_of(method: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a call as the arguments of the SDK's method of that name.

    Raises:
        Refusal: unknown, missing or wrong ones.
    """
    function = getattr(JobsAPI, method)
    hints, parameters = get_type_hints(function), inspect.signature(function).parameters
    unknown = sorted(set(body) - (set(parameters) - {"self"}))
    if unknown:
        raise invalid(f"{method}: unknown field {unknown[0]!r}")
    needed = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n != "self"]
    missing = [name for name in needed if name not in body]
    if missing:
        raise invalid(f"{method}: {missing[0]} is missing")
    return {name: _typed(hints[name], value, name) for name, value in body.items()}


def _parsed(cls: Any, body: Any) -> Any:
    if not isinstance(body, Mapping):
        raise invalid(f"{cls.__name__} must be an object, not {body!r:.80}")
    try:
        value = cls.from_dict(dict(body))
        back = value.as_dict()
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise invalid(f"{cls.__name__}: {error}") from error
    lost = sorted(_differing(dict(body), back, cls.__name__))
    if lost:
        raise invalid(f"{lost[0]} is no field, or no value, of the Jobs API 2.2")
    return value


def _differing(sent: Any, kept: Any, path: str) -> set[str]:
    """Paths of what was sent and not kept as it was; empty lists and objects mean as much as none."""
    if isinstance(sent, Mapping) and isinstance(kept, Mapping):
        names = {name for name, value in sent.items() if value not in ({}, [], None)}
        return {found for name in names for found in _differing(sent[name], kept.get(name), f"{path}.{name}")}
    if isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        return {f for n, (a, b) in enumerate(zip(sent, kept, strict=True)) for f in _differing(a, b, f"{path}[{n}]")}
    return set() if sent == kept and type(sent) is type(kept) else {path}


def _typed(hint: Any, value: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (option for option in get_args(hint) if option is not type(None))
        return None if value is None else _typed(inner, value, path)
    if origin is dict:
        _expect(isinstance(value, dict), value, path, "an object")
        return {_typed(str, k, path): _typed(get_args(hint)[1], v, f"{path}.{k}") for k, v in value.items()}
    if origin is list:
        _expect(isinstance(value, list), value, path, "a list")
        return [_typed(get_args(hint)[0], item, path) for item in value]
    if dataclasses.is_dataclass(hint):
        return _parsed(hint, value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        _expect(value in {item.value for item in hint}, value, path, f"a {hint.__name__}")
        return hint(value)
    _expect(type(value) is hint, value, path, getattr(hint, "__name__", str(hint)))
    return value


def _expect(good: bool, value: Any, path: str, wanted: str) -> None:
    if not good:
        raise invalid(f"{path} must be {wanted}, not {value!r:.80}")
