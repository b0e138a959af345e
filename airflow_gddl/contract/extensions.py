"""Kinds of parts that packages can add: one descriptor each, found by an entry point (docs/extending.md).

Descriptors name classes and functions, `module:attribute`, and import none, so that neither side loads what it doesn't
need, and no entry point is searched for a part of this project.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from airflow_gddl.contract.errors import FatalError, MetadataError

D = TypeVar("D")


class ProbeSkippedError(Exception):
    """A check of `gddl check` that is not needed, or can't be made from here; the text says why."""


@dataclass(frozen=True)
class ExtensionPoint(Generic[D]):
    """The parts of one kind.

    Attributes:
        what: the kind, for messages, e.g. `dialect`.
        group: of the entry points: a name is the part's, a value `module:attribute` of a `descriptor`.
        descriptor: class of the descriptors.
        built_in: descriptors of this project, by name.
        unknown_code, broken_code: of the errors of a name that nothing brings, and of a part that can't be loaded.
        referenced: `module:attribute` of further descriptors of this project, imported when they are asked for.
    """

    what: str
    group: str
    descriptor: type[D]
    built_in: Mapping[str, D]
    unknown_code: str
    broken_code: str
    referenced: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Names that metadata may use, built-in ones first."""
        return (*self.built_in, *self.referenced, *sorted(self.installed()))

    def get(self, name: str) -> D:
        """
        Raises:
            MetadataError: `unknown_code`.
            FatalError: `broken_code`.
        """
        if name in self.built_in:
            return self.built_in[name]
        reference = self.referenced.get(name) or self._installed_reference(name)
        loaded = self.load(reference)
        with self._loading(reference):
            if not isinstance(loaded, self.descriptor):
                raise TypeError(f"it is a {type(loaded).__name__}, not a {self.descriptor.__name__}")
            return loaded

    def installed(self) -> Mapping[str, importlib.metadata.EntryPoint]:
        """Entry points of other packages. One with the name of a part of this project is ignored."""
        own = {*self.built_in, *self.referenced}
        return {name: point for name, point in _entry_points(self.group).items() if name not in own}

    def _installed_reference(self, name: str) -> str:
        point = self.installed().get(name)
        if point is None:
            raise MetadataError(
                self.unknown_code,
                f"no {self.what} {name!r}; there are {', '.join(self.names())}",
                remedy=f"correct the name of the {self.what}, or install the package that brings it where it is used",
            )
        return point.value

    def load(self, reference: str) -> Any:
        """Load `module:attribute` of a descriptor.

        Raises:
            FatalError: `broken_code`.
        """
        module, _, attribute = reference.partition(":")
        with self._loading(reference):
            return getattr(importlib.import_module(module), attribute)

    @contextmanager
    def _loading(self, reference: str) -> Iterator[None]:
        """Any error while importing another package's code is reported as `broken_code`."""
        try:
            yield
        except Exception as error:
            raise FatalError(
                self.broken_code,
                f"the {self.what}'s {reference} can't be loaded: {type(error).__name__}: {error}",
                remedy="fix or reinstall the package that brings it, with what it needs",
            ) from error


@functools.cache
def _entry_points(group: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    return {found.name: found for found in importlib.metadata.entry_points(group=group)}


def forget_entry_points() -> None:
    """Discover newly installed packages."""
    _entry_points.cache_clear()
