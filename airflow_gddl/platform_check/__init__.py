"""`gddl check --platform`: tries storage, jobs, tables and catalogs on a real platform; a room that can be deleted.

`checks.py` lists what is tried, `course.py` says in which order, `report.py` what is shown and written.
"""
