"""Codes of metadata: rows, settings, and what `gddl validate` and `gddl plan` advise."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import COMMITS, Code

AIRFLOW_TOO_OLD = Code(
    "AIRFLOW_TOO_OLD", "fatal", "the installed Airflow is older than 3.0.6", "install Airflow 3.0.6 or newer"
)
CACHE_UNUSABLE = Code(
    "CACHE_UNUSABLE",
    "fatal",
    "no folder for compiled metadata or temporary files can be written",
    "set `[gddl] cache_dir` to a local folder",
)
CATALOG_UNKNOWN = Code(
    "CATALOG_UNKNOWN",
    "problem",
    "a row names a catalog that `gddl.yaml`, or the job, does not know",
    "correct the name, or describe it under `catalogs`",
    COMMITS,
    when_idle=True,
)
COLUMN_RESERVED = Code(
    "COLUMN_RESERVED",
    "problem",
    "a column has a name that the tables or the service use themselves",
    "rename it in the source's view, or leave it out; in `csv_columns` give it another name",
)
CRON_STEP = Code(
    "CRON_STEP", "advice", "a cron step is as long as its field's range", "write the minute or hour itself"
)
DAG_FILE_LARGE = Code(
    "DAG_FILE_LARGE",
    "advice",
    "one DAG file may have too many DAGs to parse in time",
    "use [several DAG files](airflow.md#many-dags)",
)
DOCUMENT_INVALID = Code(
    "DOCUMENT_INVALID",
    "problem",
    "a metadata file is not plain YAML, JSON or CSV in UTF-8",
    "correct the line that the message names; quote its value",
)
EXPRESSION_INVALID = Code(
    "EXPRESSION_INVALID",
    "problem",
    "an expression in `where`, `derive` or a `rule` is invalid",
    "correct it; see [Expressions](metadata.md#expressions)",
)
FIELD_MISSING = Code("FIELD_MISSING", "problem", "a required field is absent", "add the field")
FIELD_REFUSED = Code(
    "FIELD_REFUSED",
    "problem",
    "a field is not allowed here, or beside another field",
    "remove one of the two, as the message says",
)
FIELD_TYPE = Code("FIELD_TYPE", "problem", "a value has the wrong type")
FIELD_UNKNOWN = Code(
    "FIELD_UNKNOWN", "problem", "the field does not exist", "correct its spelling; the message suggests a name"
)
FIELD_UNUSED = Code(
    "FIELD_UNUSED", "advice", "a field, tier, source or catalog has no effect", "correct the name, or remove it"
)
FIELD_VALUE = Code(
    "FIELD_VALUE",
    "problem",
    "a field or option does not accept this value",
    "as the message says; see [Metadata](metadata.md)",
)
FILE_NOT_READ = Code(
    "FILE_NOT_READ",
    "warning",
    "a file or link that looks like metadata is not read",
    "move it below `tables/` or `keys/`, or remove it",
)
FRESHNESS_TOO_SHORT = Code(
    "FRESHNESS_TOO_SHORT",
    "advice",
    "`freshness` is not longer than the time between runs",
    "set a longer `freshness`, or run more often",
)
ICEBERG_REFUSED = Code(
    "ICEBERG_REFUSED",
    "problem",
    "`iceberg` does not fit a property, feature or column of the table",
    "remove one; see [What cannot be read](iceberg.md#what-cannot-be-read)",
)
KEYS_CONFLICT = Code(
    "KEYS_CONFLICT",
    "problem",
    "a row and a keys file, or two keys files, name different keys",
    "name the keys in one place",
)
KEYS_MISSING = Code(
    "KEYS_MISSING",
    "problem",
    "no keys are given, in the metadata row or in a keys file",
    "add `keys`; `[]` makes an append-only replica",
)
KEYS_UNUSED = Code(
    "KEYS_UNUSED",
    "warning",
    "a keys file names a table that no row has",
    "correct the name, add a metadata row, or remove the keys",
)
LANDING_SHARED = Code(
    "LANDING_SHARED",
    "problem",
    "two tables or sources share a landing folder, or nest theirs",
    "give each source its own landing root in `gddl.yaml`",
)
MASK_GUESSABLE = Code(
    "MASK_GUESSABLE",
    "advice",
    "values under `mask: hash` can be guessed by trying",
    "use `hmac` ([Personal data](security.md#personal-data)), then load the table again",
)
METADATA_MISSING = Code(
    "METADATA_MISSING", "fatal", "the metadata folder does not exist", "name it with `--metadata` or `GDDL_METADATA`"
)
METADATA_OUTDATED = Code(
    "METADATA_OUTDATED",
    "retriable",
    "a worker has older metadata than the sensor",
    "wait for the retry; else check how workers get metadata",
)
METADATA_UNREACHABLE = Code(
    "METADATA_UNREACHABLE",
    "retriable",
    "the metadata or table placement can't be read, or a task has no copy of it",
    "check network, region, rights and `[gddl] metadata`; see the import errors",
)
PATH_UNUSABLE = Code(
    "PATH_UNUSABLE",
    "fatal",
    "a path on the command line can't be read or written",
    "name another path, or correct its permissions",
)
PLACEMENT_DAMAGED = Code(
    "PLACEMENT_DAMAGED",
    "retriable",
    "the object that assigns tables to DAGs can't be read; DAGs stay unchanged",
    "restore it; deleting it may change DAG ids",
)
ROOTS_NESTED = Code(
    "ROOTS_NESTED", "advice", "the lake is below the landing folder, or the reverse", "put them into separate folders"
)
ROOT_UNUSABLE = Code(
    "ROOT_UNUSABLE",
    "fatal",
    "`landing` or `lake` is missing, not accessible, or has an unsupported name",
    "create the folder, grant permission, or rename it",
)
ROW_INVALID = Code(
    "ROW_INVALID",
    "problem",
    "a metadata row is invalid; its table is not loaded",
    "as the message says; `gddl validate` shows all",
)
SECRET_LIKE = Code(
    "SECRET_LIKE",
    "problem",
    "a name or value looks like a secret; it is never shown",
    "remove it, change the secret, name its place instead",
)
SETTINGS_INVALID = Code(
    "SETTINGS_INVALID",
    "fatal",
    "`gddl.yaml` or a variable is invalid; nothing can run",
    "fix the problems that the message lists",
)
SETTINGS_MISSING = Code(
    "SETTINGS_MISSING",
    "problem",
    "neither `gddl.yaml` nor variables with the roots exist",
    "write the two lines shown, or run `gddl init`",
)
TABLE_AMBIGUOUS = Code(
    "TABLE_AMBIGUOUS",
    "problem",
    "the name fits several tables",
    "write `source:schema.table`, or the lake table's name",
)
TABLE_DUPLICATE = Code(
    "TABLE_DUPLICATE", "problem", "two rows describe one table; case does not count", "remove one row"
)
TARGET_TAKEN = Code(
    "TARGET_TAKEN",
    "problem",
    "two tables have one target or catalog name; case does not count",
    "change `target` or the catalog's templates, or set `catalog: null`",
)
VARIABLE_UNKNOWN = Code(
    "VARIABLE_UNKNOWN",
    "warning",
    "a `GDDL_…` variable is not read; its name resembles one that is",
    "correct its spelling",
)
