"""A note beside the ledger that changes were cut, so that who compares finds the reason."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Superseded changes applied before `before` may be absent; `at` is when that was last seen to. ISO 8601 UTC."""

    before: str
    at: str


@dataclass(frozen=True)
class CutMark:
    """The note of the table whose state folder is `root`."""

    storage: Storage
    root: str

    @property
    def _path(self) -> str:
        return join(self.root, "cut.json")

    def note(self, cut: Cut) -> None:
        """Put down a cut; a longer retention than before takes nothing back."""
        known = self.read()
        before = cut.before if known is None else max(cut.before, known.before)
        self.storage.write(self._path, codec.to_json(Cut(before=before, at=cut.at)).encode())

    def read(self) -> Cut | None:
        """None when nothing was ever cut."""
        try:
            return codec.from_json(Cut, self.storage.read(self._path).decode())
        except FileNotFoundError:
            return None
