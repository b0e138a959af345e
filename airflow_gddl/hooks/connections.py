"""Connection types of this package: forms and tests in Airflow's UI, and hooks for DAGs of users."""

from __future__ import annotations

import json
from typing import Any

from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.connections import SOURCE_TYPE, engine_of, unreachable, url_of
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.notifications import webhook

_BaseHook: Any = capabilities.base_hook()
_TEST = "Test message of airflow-gddl: this connection works."


class GddlSourceHook(_BaseHook):  # type: ignore[misc] # its place differs between versions of Airflow
    """A source database: `verify` and `onboard` read it by a connection that rows or commands name.

    Args:
        gddl_source_conn_id: id of a connection of this type, or of the type of another database hook.
    """

    conn_name_attr = "gddl_source_conn_id"
    default_conn_name = "gddl_source_default"
    conn_type = SOURCE_TYPE
    hook_name = "GDDL source database"

    def __init__(self, gddl_source_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gddl_source_conn_id = gddl_source_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        return {
            "hidden_fields": [],
            "relabeling": {"schema": "Database", "login": "User"},
            "placeholders": {"extra": json.dumps({"dialect": "postgresql"}), "host": "orders.example.org"},
        }

    def get_conn(self) -> Any:
        """An `sqlalchemy.engine.Connection`; close it.

        Raises:
            FatalError: `SOURCE_CONNECTION_MISSING`, `SOURCE_DRIVER_MISSING`, `SOURCE_REFUSED`.
            RetriableError: `SOURCE_UNREACHABLE`.
        """
        import sqlalchemy  # noqa: PLC0415 - Airflow 3 needs it in its own processes only

        connection = capabilities.connection(self.gddl_source_conn_id)
        names = ("conn_type", "login", "password", "host", "port", "schema", "extra")
        fields = {name: getattr(connection, name) for name in names}
        url = url_of(sqlalchemy, self.gddl_source_conn_id, {self.gddl_source_conn_id: json.dumps(fields)})
        try:
            return engine_of(sqlalchemy, url).connect()
        except sqlalchemy.exc.DBAPIError as error:
            raise unreachable(url, error) from error

    def test_connection(self) -> tuple[bool, str]:
        """Called by *Test* of the form; needs the database's driver where the API server runs."""
        import sqlalchemy  # noqa: PLC0415 - as above

        try:
            with self.get_conn() as connection:
                connection.exec_driver_sql(_SELECT.get(connection.dialect.name, "SELECT 1"))
        except GddlError as error:
            return False, str(error)
        except sqlalchemy.exc.SQLAlchemyError as error:  # its text may hold the URL
            return False, type(error).__name__
        return True, "the database answers"


_SELECT = {"oracle": "SELECT 1 FROM dual", "ibm_db_sa": "SELECT 1 FROM sysibm.sysdummy1"}
"""By SQLAlchemy's name of the dialect: those that need a table."""


class GddlWebhookHook(_BaseHook):  # type: ignore[misc] # the hook of Airflow has no types
    """The webhook of alerts: the host is its URL; the password the end of its path, or the whole URL."""

    conn_name_attr = "gddl_webhook_conn_id"
    default_conn_name = "gddl_webhook_default"
    conn_type = "gddl_webhook"
    hook_name = "GDDL webhook"

    def __init__(self, gddl_webhook_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gddl_webhook_conn_id = gddl_webhook_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        return {
            "hidden_fields": ["schema", "login", "port", "extra"],
            "relabeling": {"host": "URL", "password": "End of the URL, or the whole URL"},
            "placeholders": {"host": "https://hooks.example.org/services"},
        }

    def get_conn(self) -> str:
        """The URL.

        Raises:
            FatalError: `NOTIFIER_CONNECTION_INVALID`.
        """
        return webhook.url_of(capabilities.connection(self.gddl_webhook_conn_id))

    def send(self, text: str) -> None:
        """
        Raises:
            RetriableError: `NOTIFIER_UNREACHABLE`: no response, or an error status.
            FatalError: `NOTIFIER_CONNECTION_INVALID`.
        """
        webhook.post_json(self.get_conn(), {"text": text})

    def test_connection(self) -> tuple[bool, str]:
        """Called by *Test* of the form: sends a message."""
        try:
            self.send(_TEST)
        except GddlError as error:
            return False, f"{type(error).__name__}: {error}"
        return True, "the message was sent"
