"""Files of a project: what `gddl init` and `gddl demo` write beside the metadata."""

from __future__ import annotations

from airflow_gddl.bundle.dag_files import DAG_FILES

SETTINGS = """\
# yaml-language-server: $schema=schema/gddl.json
# Folders are absolute, relative to this folder, or s3://bucket/prefix.
# GDDL_LANDING and GDDL_LAKE override them, so that one project serves development and production.
landing: ../landing
lake: ../lake
"""
TABLES = """\
# yaml-language-server: $schema=../schema/tables.json
# A row is a table. To add one, remove the # before its line and write its name and keys as the source has them.
# Its files are expected in <landing>/shop/orders/.
source: shop
tables:
#  - {table: shop.orders, keys: id}
#  - {table: shop.order_lines, keys: [order_id, line_no], freshness: 2h, history: true}
"""
IGNORED = """\
landing/
lake/
metadata/
"""
README = """\
# Tables in Delta Lake

Made by `gddl init`. A row in `metadata/tables/` brings a database table from the files of a change-data-capture
service into Delta Lake.

1. Set `landing` (where AWS DMS or Debezium writes files) and `lake` (where tables are kept) in `metadata/gddl.yaml`.
2. Run `gddl check`. It tries folders, permissions, connections and versions, and says what is wrong.
3. Add rows. `gddl onboard shop` proposes them for all tables that have files in the landing folder; or write the first
   row by hand in `metadata/tables/shop.yaml`.
4. Run `gddl validate`, then `gddl run`, then `gddl status`.
5. Put this folder into version control, without `landing` and `lake`. For Airflow, put `dags/` and `metadata/` side by
   side into its DAGs folder or bundle.

| path | contents |
|---|---|
| `metadata/gddl.yaml` | settings for all tables |
| `metadata/tables/` | a row for each table |
| `metadata/schema/` | JSON Schemas, for completion in editors |
| `dags/` | Airflow DAGs, made of the rows; no need to change them |
| `.airflowignore` | folders in which Airflow looks for no DAGs |
"""
PROJECT = {
    "metadata/gddl.yaml": SETTINGS,
    "metadata/tables/shop.yaml": TABLES,
    **{f"dags/{name}": text for name, text in DAG_FILES.items()},
    ".airflowignore": IGNORED,
    "README.md": README,
}
