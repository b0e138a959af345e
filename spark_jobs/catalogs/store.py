"""Registration state in the lake, so that an idle run calls no catalog."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.registration import RegistrationState, registration_path, stored
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage


@dataclass(frozen=True)
class RegistrationStore:
    """Documents of all tables, at `lake/_gddl/catalogs/<catalog>/<schema>/<name>.json`."""

    storage: Storage
    lake: str

    def get(self, spec: TableSpec) -> RegistrationState:
        """The stored state; empty where the row has no catalog, or there is no document, or a damaged one."""
        return stored(self.storage.read, self.lake, spec)

    def put(self, spec: TableSpec, state: RegistrationState) -> None:
        """Store the state; without a catalog in the row there is none to store."""
        path = registration_path(self.lake, spec)
        if path is not None:
            self.storage.write(path, codec.to_json(state).encode())

    def forget(self, spec: TableSpec) -> None:
        path = registration_path(self.lake, spec)
        if path is not None:
            self.storage.delete(path)
