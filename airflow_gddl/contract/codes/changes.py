"""Warnings about changes, and codes of catalogs."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import COMMITS, COUNTS, Code

ADDED_COLUMN_DEFAULT = Code(
    "ADDED_COLUMN_DEFAULT",
    "warning",
    "older rows have null in added columns instead of the source's default",
    "take a new snapshot, or `gddl resync --differences --table T`",
)
BATCH_LATE = Code(
    "BATCH_LATE",
    "warning",
    "changes older than those loaded before were not applied",
    "nothing if files were late; if the log was reset, see [Order](debezium.md#order)",
    ("run", "reload"),
)
CATALOG_CHANGE_UNSUPPORTED = Code(
    "CATALOG_CHANGE_UNSUPPORTED",
    "warning",
    "the catalog can't apply this change to an entry",
    "nothing; or drop the entry, then `gddl catalog sync` (loses permissions)",
)
CATALOG_CONNECTION_MISSING = Code(
    "CATALOG_CONNECTION_MISSING",
    "warning, fatal",
    "the Iceberg catalog's `connection` is missing or empty; the data is loaded",
    "create it in Airflow, or set `AIRFLOW_CONN_…`",
    COMMITS,
    when_idle=True,
)
CATALOG_DENIED = Code(
    "CATALOG_DENIED",
    "warning",
    "the catalog denies the job its rights; the data is loaded",
    "grant [the rights](catalogs.md#describe-a-catalog)",
    COMMITS,
    when_idle=True,
)
CATALOG_ENTRY_LEFT = Code(
    "CATALOG_ENTRY_LEFT",
    "warning",
    "the catalog still has entries under the table's former names",
    "drop them in the catalog; `gddl catalog diff` lists them",
)
CATALOG_NAME_INVALID = Code(
    "CATALOG_NAME_INVALID",
    "warning",
    "the catalog can't hold the table's name",
    "change the templates, or set `catalog: null`",
    COMMITS,
    when_idle=True,
)
CATALOG_NAME_TAKEN = Code(
    "CATALOG_NAME_TAKEN",
    "warning",
    "another table's catalog entry has this name; it is left unchanged",
    "drop or rename it, or choose other templates",
    COMMITS,
    when_idle=True,
)
CATALOG_REFUSED = Code(
    "CATALOG_REFUSED",
    "warning",
    "the catalog refuses the entry, or does not exist",
    "correct what the message names, in catalog or settings",
    COMMITS,
    when_idle=True,
)
CATALOG_REGISTERED = Code(
    "CATALOG_REGISTERED",
    "warning",
    "the catalog has the table again, after an earlier problem",
    "nothing",
    when_idle=True,
)
CATALOG_TABLE_DROPPED = Code(
    "CATALOG_TABLE_DROPPED",
    "warning",
    "the table's entry was dropped in the catalog",
    "`gddl catalog sync` registers it again",
    COMMITS,
    when_idle=True,
)
CATALOG_UNREACHABLE = Code(
    "CATALOG_UNREACHABLE",
    "warning, retriable",
    "the catalog does not answer, or credentials are missing; the data is loaded",
    "nothing; each run tries again",
    COMMITS,
    when_idle=True,
)
COLUMNS_NOT_COMPARED = Code(
    "COLUMNS_NOT_COMPARED",
    "warning",
    "`gddl verify` compared only a part of the columns with the source",
    "nothing for masked columns; else compare these yourself",
)
COLUMN_DROPPED = Code(
    "COLUMN_DROPPED",
    "warning",
    "change files no longer have some columns of the table",
    "nothing if intended; to remove them, `exclude_columns`, then `gddl rebuild --table T`",
    ("run", "reload"),
)
COLUMN_NOT_FOUND = Code(
    "COLUMN_NOT_FOUND",
    "warning",
    "the metadata row names a column that files or the table lack",
    "correct the spelling",
)
CONNECTORS_SHARE_KEYS = Code(
    "CONNECTORS_SHARE_KEYS",
    "warning",
    "events of one table come from several connectors",
    "set `options: {source_tables: several}` or `shards` ([Several tables in one "
    "topic](debezium.md#several-tables-in-one-topic))",
)
CSV_EMPTY_FIELDS = Code(
    "CSV_EMPTY_FIELDS",
    "warning",
    "empty CSV fields were read as empty texts; `csv_null` is not set",
    "set `options.csv_null`; if they are null, then `gddl reload --from-files --table T`",
)
CSV_NOT_SUPPLIED = Code(
    "CSV_NOT_SUPPLIED",
    "warning",
    "CSV updates with the default `csv_no_sup` word keep stored values",
    "set `options.csv_no_sup`; if `null`, then `gddl reload --from-files --table T`",
)
CUTS_UNMASKED = Code(
    "CUTS_UNMASKED",
    "warning",
    "cuts keep values of columns that are now masked or excluded",
    "`gddl as-of drop NAME`, then make the cut again",
)
DEFAULT_OR_NULL = Code(
    "DEFAULT_OR_NULL",
    "warning",
    "values equal their column's default, which may [stand for null](debezium.md#defaults-of-columns)",
    "set `replace.null.with.default=false` in the connector, and `options: {replace_null_with_default: false}`",
)
EQUAL_ROWS_UNDECIDED = Code(
    "EQUAL_ROWS_UNDECIDED",
    "warning",
    "equal rows of a table without keys may be duplicates",
    "name `keys`, or number the changes ([Duplicates](debezium.md#order))",
)
ERASED_SKIPPED = Code("ERASED_SKIPPED", "warning", "older rows of erased keys were skipped", "nothing")
FOREIGN_COMMIT = Code(
    "FOREIGN_COMMIT",
    "warning",
    "another writer changed data in a table of this package",
    "`gddl verify`; if it differs, `gddl rebuild --table T`",
    ("run", "rebuild", "reload"),
    when_idle=True,
)
KEYS_SHARED = Code(
    "KEYS_SHARED",
    "warning",
    "rows of a full load or rebuild share keys; the last remains",
    "correct `keys`, then `gddl rebuild --table T`; else `gddl errors dismiss --table T --code "
    'KEYS_SHARED --reason "…"`',
    ("rebuild", "reload", "errors_dismiss"),
    judged=True,
)
LOG_BEGAN_LATE = Code(
    "LOG_BEGAN_LATE",
    "warning",
    "files after `options.log_began` were loaded before it was set",
    "`gddl rebuild --table T` puts them in order",
    ("run", "rebuild", "reload"),
)
MOVED_ROW_DELETED = Code(
    "MOVED_ROW_DELETED",
    "warning",
    "rows exchanged keys, and a later move deleted some",
    "compare these rows with the source; reload if some are missing",
)
MOVED_ROW_INCOMPLETE = Code(
    "MOVED_ROW_INCOMPLETE",
    "warning",
    "changes carry a part of the row; other columns are null",
    "have the source send before images (`REPLICA IDENTITY FULL`); compare or reload the table",
)
ORDER_NOT_TOTAL = Code(
    "ORDER_NOT_TOTAL",
    "warning",
    "changes are ordered by a commit time, which several can share",
    "set `sequence_by` to a total order; DMS: `AR_H_CHANGE_SEQ`",
)
PARTITIONS_KEPT = Code(
    "PARTITIONS_KEPT",
    "warning",
    "rows of partitions dropped in the source stay in the table",
    "nothing, or `gddl load --again --table T` to remove them",
)
PUBLISHED_WITHOUT_KEY = Code(
    "PUBLISHED_WITHOUT_KEY",
    "warning",
    "the publication has tables without keys, whose updates fail; this one is loaded",
    "run the message's statement, or `ALTER PUBLICATION … DROP TABLE …`",
)
QUARANTINE_STALE = Code(
    "QUARANTINE_STALE",
    "warning",
    "replica rows are older than quarantined changes of their keys",
    "correct the cause, `gddl errors replay --table T`; else `gddl errors dismiss --table T --code CODE --reason TEXT`",
    COUNTS,
    judged=True,
)
SEQUENCE_TIE = Code(
    "SEQUENCE_TIE",
    "warning",
    "different changes share key and sequence; `tie_break` decided",
    "name a total order in `sequence_by`, or change `tie_break`",
)
SHARDS_SHARE_KEYS = Code(
    "SHARDS_SHARE_KEYS",
    "warning",
    "MongoDB documents of several shards may share an `_id`",
    "nothing if `_id` is unique; else `keys: [_id, _dbz_shard]`, then reload ([MongoDB](debezium.md#mongodb))",
)
SHARD_REMOVED = Code(
    "SHARD_REMOVED",
    "warning",
    "rows of sources no longer in `shards` were not compared or replayed",
    "nothing, or add the source again",
)
SOURCE_NOT_COMPARED = Code(
    "SOURCE_NOT_COMPARED", "warning", "`gddl verify` compared this table only with its changes", "nothing"
)
SOURCE_UNSETTLED = Code(
    "SOURCE_UNSETTLED",
    "warning",
    "keys differ from the source, but their changes may be pending",
    "nothing; the next verify shows it",
)
TEXT_CONVERTED = Code(
    "TEXT_CONVERTED",
    "warning",
    "text in files was converted to the column's type",
    "nothing, or [make the column text](tasks/change-a-key-or-a-type.md#make-a-column-text-for-"
    "good), then `gddl reload --from-files --table T`",
)
TIMES_REDUCED = Code(
    "TIMES_REDUCED",
    "warning",
    "times were cut or rounded to microseconds",
    "nothing, or set `sub_microseconds: quarantine`",
)
TRUNCATE_APPLIED = Code(
    "TRUNCATE_APPLIED",
    "warning",
    "the source's table was truncated; earlier rows were deleted",
    "nothing; `truncate: hold` lets a user decide",
)
TRUNCATE_HELD = Code(
    "TRUNCATE_HELD",
    "warning",
    "the source's table was truncated; this and later files wait",
    "`gddl release truncate --table T`, or `truncate: report` to keep the rows",
    ("run", "reload", "release"),
)
TRUNCATE_IGNORED = Code(
    "TRUNCATE_IGNORED",
    "warning",
    "the source's table was truncated; its rows stay",
    "nothing, or set `truncate: apply`, then `gddl reload --from-files --table T`",
    ("run", "reload"),
)
UPDATE_WITHOUT_PRIOR = Code(
    "UPDATE_WITHOUT_PRIOR",
    "warning",
    "updates or deletes concern keys that are unknown or deleted",
    "compare the keys; align their spelling, set `before_image_prefix`, or reload",
)
VALUES_RESCUED = Code(
    "VALUES_RESCUED",
    "warning",
    "values went to `_rescued_data` under a policy of `rescue`",
    "add the column or correct its type, then reload",
)
WINDOWS_NOT_COMPARED = Code(
    "WINDOWS_NOT_COMPARED",
    "warning",
    "`gddl verify --since` can't compare with a source; files are only counted",
    "name a connection, or the column by `--column`",
)
