"""`gddl check --platform`: tries storage, jobs and tables on a real platform; a room that can be deleted.

`checks.py` lists what is tried, `command.py` says in which order, `report.py` what is written.
"""
