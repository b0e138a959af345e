"""Tables of a source that have no row: proposed to a person, who decides (`new_tables` of a source).

`standing` is pure; `finding` lists folders, reads the source's catalog and files; `looking` puts both together and
writes the lake's object (`metadata.looks`).
"""

from airflow_gddl.onboarding.new_tables.looking import decide, look

__all__ = ["decide", "look"]
