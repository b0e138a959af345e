"""Tables of a source that have no row: proposed to a person, who decides (`new_tables` of a source).

`standing` is pure; `finding` lists folders, reads the source's catalog and files; `looking` puts both together, keeps
proposals in the lake (`runtime.compiled.proposals`), and writes accepted rows into the metadata folder.
"""

from airflow_gddl.tools.onboarding.new_tables.finding import LookRequest
from airflow_gddl.tools.onboarding.new_tables.looking import Decisions, decide, look

__all__ = ["Decisions", "LookRequest", "decide", "look"]
