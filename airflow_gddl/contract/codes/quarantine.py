"""Codes of files and rows that are kept in the quarantine."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import COUNTS, Code

APPEND_ONLY_CHANGE = Code(
    "APPEND_ONLY_CHANGE",
    "row",
    "a table without keys received an update or delete",
    "name the table's keys, then run `gddl rebuild --table T`; or dismiss the row",
)
CAST_FAILED = Code(
    "CAST_FAILED",
    "row",
    "a value does not fit its column's type",
    "correct options.types (string makes the column text), or set type_change: rescue; then replay",
)
COLUMNS_UNKNOWN = Code(
    "COLUMNS_UNKNOWN",
    "row",
    "an update's column list names no column of its file",
    "correct columns_to_update or rename, then replay; or correct the source, then dismiss",
)
DELETES_COMPACTED = Code(
    "DELETES_COMPACTED",
    "warning",
    "Kafka removed deletes before a job read them; their rows stay",
    "raise `min.compaction.lag.ms`; let the connector take a new snapshot",
)
EXPECTATION_FAILED = Code(
    "EXPECTATION_FAILED",
    "row, warning, fatal",
    "a row, or too large a share of a batch, fails an [expectation](semantics.md#18-expectations)",
    "change the expectation, then replay; or correct the source, then dismiss",
)
FILES_DISMISSED = Code(
    "FILES_DISMISSED",
    "warning",
    "unreadable change files were dismissed; their changes are missing",
    "nothing, or deliver them again",
)
FILES_IGNORED = Code(
    "FILES_IGNORED",
    "warning",
    "files with names unknown to the dialect were ignored",
    "move them, or see [DMS options](metadata.md#dms-options)",
)
FILES_REFUSED = Code(
    "FILES_REFUSED",
    "warning",
    "landing files must not be read: outside links, or names not UTF-8",
    "copy the link's content into the folder; rename the file",
)
FILES_TOUCHED = Code(
    "FILES_TOUCHED", "warning", "files have a new time or tag with unchanged content; nothing was reloaded", "nothing"
)
FILE_EMPTY = Code(
    "FILE_EMPTY",
    "file",
    "the file has no bytes, or a parquet file no columns",
    "deliver the file again: it is read when it changes; if it can't be, dismiss it",
)
FILE_KEY_MISSING = Code(
    "FILE_KEY_MISSING",
    "file",
    "a change file lacks a key column; other files continue",
    "correct keys or rename, then replay; or deliver the file again; if it can't be, dismiss it",
)
FILE_STREAM_FAILED = Code(
    "FILE_STREAM_FAILED",
    "warning, retriable",
    "Spark's stream of new files failed; the folder was listed instead",
    "see the message; remove the checkpoint that it names",
)
FILE_TOO_LARGE = Code(
    "FILE_TOO_LARGE",
    "file",
    "a file is larger than its tier, or metadata, allows",
    "raise max_inflated_bytes of the tier, then replay; or deliver smaller files",
)
FILE_UNREADABLE = Code(
    "FILE_UNREADABLE",
    "file, warning",
    "a file can't be read; the warning counts such files",
    "correct the metadata row, then replay; or deliver the file again: it is read when it changes",
    COUNTS,
    judged=True,
)
FILE_VANISHED = Code(
    "FILE_VANISHED",
    "warning, file",
    "the file was removed between listing and reading",
    "nothing; it is loaded if it returns",
)
FILTER_UNDECIDED = Code(
    "FILTER_UNDECIDED",
    "row",
    "an update lacks a column that `where` needs",
    "have the source send whole rows, then dismiss these",
)
FIRST_LOAD_UNREADABLE = Code(
    "FIRST_LOAD_UNREADABLE",
    "fatal",
    "the first full load can't be read; no table exists yet",
    "see `gddl errors list`; correct the cause, or `gddl errors dismiss --table T --code CODE --reason TEXT`",
)
FOLDER_LARGE = Code(
    "FOLDER_LARGE",
    "warning",
    "the landing folder has 500,000 objects or more",
    "set `landing_retention`; see [Many files](operate.md#many-files-in-a-landing-folder)",
)
FOLDER_MISSING = Code(
    "FOLDER_MISSING",
    "warning",
    "the landing folder is missing; nothing was changed",
    "correct the name or `landing`, or set `options.missing_folder`",
    ("run",),
    judged=True,
)
KEY_NULL = Code(
    "KEY_NULL",
    "row",
    "a part of the key is null",
    "correct keys, run `gddl rebuild --table T`, then replay; or correct the source, then dismiss",
)
LOAD_AFTER_CHANGES = Code(
    "LOAD_AFTER_CHANGES",
    "warning",
    "new load files came after changes and were added to the load",
    "nothing if they belong together; else `generations: by_time`, then `gddl reload --from-files --table T`",
    ("run", "reload"),
)
LOAD_INCOMPLETE = Code(
    "LOAD_INCOMPLETE",
    "warning",
    "unreadable files of the full load were dismissed; their rows are missing",
    "deliver the files again, or load the table again",
    ("run", "reload"),
    judged=True,
)
LOAD_UNREADABLE = Code(
    "LOAD_UNREADABLE",
    "fatal",
    "a full load's file can't be read; load and newer files wait",
    "see `gddl errors list`; correct the cause, or `gddl errors dismiss --table T --code CODE --reason TEXT`",
)
MESSAGES_IGNORED = Code(
    "MESSAGES_IGNORED",
    "warning",
    "a topic's messages are schema changes; they were not written",
    "set `options.topic` to the topic of the table's changes",
)
OP_UNKNOWN = Code(
    "OP_UNKNOWN",
    "row",
    "the operation is not one that the dialect knows",
    "if all rows have it, correct options.op_column or options.missing_op of the metadata row, "
    "then replay; if only a few have it, dismiss them",
)
PARTITION_VALUE_REFUSED = Code(
    "PARTITION_VALUE_REFUSED",
    "row",
    "a text value can't be used as a partition value",
    "partition by another column, then replay; or correct the source, then dismiss",
)
ROW_MALFORMED = Code(
    "ROW_MALFORMED",
    "row",
    "a CSV line or Debezium record is malformed",
    "deliver the file again; if it can't be, dismiss the row",
)
SEQUENCE_NULL = Code(
    "SEQUENCE_NULL",
    "row",
    "a change has no sequence",
    "correct sequence_by, run `gddl rebuild --table T`, then replay; or correct the source, then dismiss",
)
SEQUENCE_UNPARSABLE = Code(
    "SEQUENCE_UNPARSABLE",
    "row",
    "the sequence does not fit the type that orders changes",
    "correct sequence_by or options.types, then replay; or correct the source, then dismiss",
)
TABLES_LEFT_OUT = Code(
    "TABLES_LEFT_OUT",
    "warning",
    "the log has tables with unsupported names; they were left out",
    "rename them, or remove them from the publication",
)
TEXT_NOT_UTF8 = Code(
    "TEXT_NOT_UTF8",
    "row",
    "a text column holds bytes that are not UTF-8",
    "list the column in exclude_columns or mask, then replay; or correct the source, then dismiss",
)
TOPIC_MISSING = Code(
    "TOPIC_MISSING",
    "warning",
    "the topic does not exist; the first change creates it",
    "wait for a change, or correct `options.topic`",
)
