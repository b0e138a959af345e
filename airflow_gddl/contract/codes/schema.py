"""Codes of schemas, keys and sequences."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import Code

BAD_ROWS = Code(
    "BAD_ROWS",
    "fatal",
    "files hold bad rows, and `on_bad_row` is `fail`",
    "fix them at the source, or set `on_bad_row: quarantine`",
)
BEFORE_IMAGES_CHANGED = Code(
    "BEFORE_IMAGES_CHANGED",
    "fatal",
    "`before_image_prefix` no longer fits the stored columns",
    "restore it; else `gddl rebuild --table T`, or `gddl reload --from-files --table T`",
)
CHANGES_INCOMPATIBLE = Code(
    "CHANGES_INCOMPATIBLE",
    "fatal",
    "the ledger is lost, and the change table does not fit the files",
    "restore ledger or files, or `gddl reload --from-files --table T`",
)
COLUMNS_CHANGED = Code(
    "COLUMNS_CHANGED",
    "fatal",
    "`exclude_columns` or `columns` now excludes a stored column",
    "`gddl rebuild --table T`, which drops its values; or restore the metadata row",
)
COLUMN_NAMES_COLLIDE = Code(
    "COLUMN_NAMES_COLLIDE",
    "fatal",
    "two columns of a file, or one and a computed one, would get one name",
    "`rename` or `exclude_columns` with one exact name; give the computed column another",
)
COLUMN_NAME_RESERVED = Code(
    "COLUMN_NAME_RESERVED",
    "fatal",
    "a column's name is reserved, or collides with a renamed one",
    "exclude one, or rename it at the source",
)
COLUMN_TYPE_UNSUPPORTED = Code(
    "COLUMN_TYPE_UNSUPPORTED",
    "fatal",
    "a column has an invalid type, or one that no table, or no partition, can hold",
    "exclude the column, or correct `options.types`; for a partition see [Layout](layout.md)",
)
CONTROL_COLUMN_MISSING = Code(
    "CONTROL_COLUMN_MISSING",
    "fatal",
    "`columns_to_update` or `force_update` names an unknown column; nothing was written",
    "correct the name, or remove the field until files have it",
)
DERIVED_CHANGED = Code(
    "DERIVED_CHANGED",
    "fatal",
    "`derive` differs from the columns the tables were built with",
    "restore it, or `gddl rebuild --table T`",
)
FILTER_CHANGED = Code(
    "FILTER_CHANGED",
    "fatal",
    "`where` differs from the filter of the stored rows",
    "restore it; else `gddl rebuild --table T` or `gddl reload --from-files --table T`",
)
FILTER_COLUMN_MISSING = Code(
    "FILTER_COLUMN_MISSING",
    "fatal",
    "files lack a column of `where`; all their rows would be removed",
    "deliver the column, or change `where`",
)
FLAT_EVENT_INCOMPLETE = Code(
    "FLAT_EVENT_INCOMPLETE",
    "fatal",
    "flat Debezium events lack fields for deletes or order; nothing was written",
    "correct the transform, write the files again ([Flat events](debezium.md#flat-events))",
)
KEYS_CHANGED = Code(
    "KEYS_CHANGED",
    "fatal",
    "`keys` differ from those the tables were built with",
    "restore them, or `gddl rebuild --table T`",
)
KEY_COLUMN_MISSING = Code(
    "KEY_COLUMN_MISSING",
    "fatal",
    "files lack a key column, or it is all null",
    "correct `keys` or the source; without a CSV header `csv_header: false` and `csv_columns`",
)
KEY_MASKED = Code("KEY_MASKED", "fatal", "a key column is masked with `null`", "mask it with `hash`")
KEY_TYPE = Code(
    "KEY_TYPE",
    "fatal",
    "a key column's values can't be compared reliably",
    "declare `string` in `options.types`; if loaded, `gddl reload --from-files --table T`",
)
LAYOUT_COLUMN_MISSING = Code(
    "LAYOUT_COLUMN_MISSING", "fatal", "`cluster_by` or `partition_by` names an unknown column", "correct the name"
)
MASK_CHANGED = Code(
    "MASK_CHANGED",
    "fatal",
    "a stored column's mask or hash has changed",
    "`gddl rebuild --table T`; if hashes change, `gddl reload --from-files --table T`; or restore the metadata row",
)
MASK_KEY_MISSING = Code(
    "MASK_KEY_MISSING",
    "fatal",
    "`mask: hmac` has no key of 16 bytes or more; nothing was written",
    "set `GDDL_MASK_KEY` or `GDDL_MASK_KEY_FILE` where jobs run",
)
MODE_CHANGED = Code(
    "MODE_CHANGED",
    "fatal",
    "`mode` differs from the one the tables were built with",
    "restore it, or `gddl reload --from-files --table T`",
)
NOTHING_TO_REFRESH = Code(
    "NOTHING_TO_REFRESH",
    "fatal",
    "a reload or rebuild found no readable file; tables are unchanged",
    "restore the files",
)
PARTITION_CHANGED = Code(
    "PARTITION_CHANGED",
    "fatal",
    "`partition_by` differs from the one the replica was built with",
    "restore it, or `gddl rebuild --table T`",
)
PROTECTED_COLUMN_MISSING = Code(
    "PROTECTED_COLUMN_MISSING",
    "fatal",
    "`mask` or `exclude_columns` names an unknown column; nothing was written",
    "correct the name; if it comes later, add it to `absent_columns`",
)
RENAME_CHANGED = Code(
    "RENAME_CHANGED",
    "fatal",
    "`rename` moves a stored column's values to another column",
    "restore it, or `gddl reload --from-files --table T`",
)
SCHEMA_INCOMPATIBLE = Code(
    "SCHEMA_INCOMPATIBLE",
    "fatal",
    "files do not fit the metadata row's `schema`; nothing was written",
    "correct the source, or change [`schema`](metadata.md#schema-gate)",
)
SCHEMA_REFUSED = Code(
    "SCHEMA_REFUSED", "fatal", "a schema change is refused by a policy of `fail`", "change the policy, or the source"
)
SEQUENCE_CHANGED = Code(
    "SEQUENCE_CHANGED",
    "fatal",
    "`sequence_by` differs from the one the tables were built with",
    "restore it, or `gddl rebuild --table T`",
)
SEQUENCE_FORM = Code(
    "SEQUENCE_FORM",
    "fatal",
    "sequences are text whose order is not known",
    "use ISO 8601 times or fixed-width text, or set `options.types`; see [A change](semantics.md#1-a-change)",
)
SEQUENCE_MISSING = Code("SEQUENCE_MISSING", "fatal", "nothing in the change files orders changes", "set `sequence_by`")
SEQUENCE_PRECISION = Code(
    "SEQUENCE_PRECISION",
    "fatal",
    "sequences are times with digits past the microsecond",
    "set `options: {types: {column: string}}`, then rebuild if loaded",
)
SEQUENCE_TYPE = Code(
    "SEQUENCE_TYPE",
    "fatal",
    "a `sequence_by` column has a type without a stable order",
    "use text or the former type, or another column and rebuild",
)
SEQUENCE_WIDTH = Code(
    "SEQUENCE_WIDTH",
    "fatal",
    "sequences are text of varying width, or from [different kinds of sources](debezium.md#order)",
    "use a fixed width; or set `options.types`, then `gddl rebuild --table T`",
)
SHARDS_CHANGED = Code(
    "SHARDS_CHANGED",
    "fatal",
    "a loaded table's row got `shards`, or lost them",
    "set a new `target`, or restore the metadata row",
)
SHARD_COLUMN_TAKEN = Code(
    "SHARD_COLUMN_TAKEN",
    "fatal",
    "a file has a column `_source`; other sources are loaded",
    "rename the column, or give each source its own table",
)
SHARD_ORDER_DIFFERS = Code(
    "SHARD_ORDER_DIFFERS",
    "fatal",
    "one source's sequences have another type; other sources are loaded",
    "declare one type in `options.types`, or [load it again](sources.md#load-a-sharded-table-again)",
)
SOURCE_LOG_RESTARTED = Code(
    "SOURCE_LOG_RESTARTED",
    "fatal",
    "the source's log was reset: new changes precede known ones",
    "set `options.log_began` ([Order](debezium.md#order)); if jobs read the log, `gddl load --again --table T`",
)
TABLES_SHARE_KEYS = Code(
    "TABLES_SHARE_KEYS",
    "fatal",
    "files hold events of several tables with equal keys; nothing was written",
    "`keys: [id, _dbz_table]` and rebuild, or `source_tables: several` ([Several tables in one "
    "topic](debezium.md#several-tables-in-one-topic))",
)
