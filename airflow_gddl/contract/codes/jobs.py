"""Codes of commands and jobs."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import COMMITS, Code

ACTION_MISSING = Code(
    "ACTION_MISSING",
    "setup",
    "the job's installation lacks the module of an action",
    "install all of airflow-gddl where the job runs",
)
ADOPT_ERASED = Code(
    "ADOPT_ERASED", "warning", "keys erased before may be back with the adopted table's rows", "erase these keys again"
)
ADOPT_NOT_PROVED = Code(
    "ADOPT_NOT_PROVED",
    "fatal",
    "the table to adopt differs from its source; nothing was written",
    "see [Prove it](tasks/adopt.md#prove-it)",
)
ADOPT_NO_SEQUENCE = Code(
    "ADOPT_NO_SEQUENCE",
    "warning",
    "the adopted table has no ordering column; any later change counts as newer",
    "see [what it assumes](tasks/adopt.md#what-it-assumes)",
)
ADOPT_REFUSED = Code(
    "ADOPT_REFUSED",
    "fatal",
    "the table can't be adopted in place; nothing was written",
    "as the message says; see [Adopt](tasks/adopt.md)",
)
ADOPT_RELEASE_UNCONFIRMED = Code(
    "ADOPT_RELEASE_UNCONFIRMED", "fatal", "`gddl adopt --release` was not confirmed", "confirm with `--yes`"
)
AGAINST_DIFFERENT = Code(
    "AGAINST_DIFFERENT",
    "fatal",
    "rows of both tables differ, and no pending file explains it",
    "see [Compare with another table](repair.md#compare-with-another-table)",
)
AGAINST_REFUSED = Code(
    "AGAINST_REFUSED", "fatal", "the other table is missing, can't be read, or can't be matched by key"
)
AGAINST_UNSETTLED = Code(
    "AGAINST_UNSETTLED",
    "warning",
    "rows differ because one table lacks changes of some files yet",
    "compare again when both have the same files",
)
ATTEMPTS_DAMAGED = Code(
    "ATTEMPTS_DAMAGED",
    "fatal",
    "the record of a task's submitted runs can't be read",
    "check that no run is active, then remove the named folder",
)
CLUSTER_UNUSABLE = Code(
    "CLUSTER_UNUSABLE",
    "retried",
    "Spark could not start on the cluster or the job's machine",
    "see the job's log; check `runners` in `gddl.yaml` and the tier's `memory`",
)
COMMAND_MISSING = Code(
    "COMMAND_MISSING",
    "setup",
    "this installation lacks the module of a command, or the job's code",
    "install all of airflow-gddl",
)
CONNECTION_UNUSABLE = Code(
    "CONNECTION_UNUSABLE",
    "fatal",
    "a connection has no way to log in, or no http(s) URL",
    "correct the Airflow connection, or the command's environment",
)
CONSTRAINT_VIOLATED = Code(
    "CONSTRAINT_VIOLATED",
    "fatal",
    "a row violates a constraint of the Delta table, which stays unchanged",
    "drop it, run, correct the source, add it again ([Constraints](layout.md#constraints))",
)
CONTRACT_VERSION = Code(
    "CONTRACT_VERSION",
    "fatal",
    "the job specification, or the code on executors, has another version",
    "install the same airflow-gddl on both sides",
)
CUT_KEYS_CHANGED = Code(
    "CUT_KEYS_CHANGED",
    "fatal",
    "cuts have other keys or key masks; other tables have lost the erased key",
    "drop these cuts, then erase again",
)
CUT_MISSING = Code(
    "CUT_MISSING", "fatal", "the lake has no cut of this name, or it was dropped", "choose one of `gddl as-of list`"
)
CUT_REFUSED = Code(
    "CUT_REFUSED",
    "fatal",
    "a table can't be shown as of this moment; nothing was written",
    "as the message says; see [as-of](as-of.md#what-is-refused)",
)
CUT_TABLE_CHANGED = Code(
    "CUT_TABLE_CHANGED",
    "retriable",
    "the table changed while the cut was made; nothing was kept",
    "run the command again",
)
DELTA_MISSING = Code(
    "DELTA_MISSING",
    "retried",
    "JARs of Delta, or of Spark for S3, can't be fetched or stored",
    "allow access to Maven Central, or put them into the named cache; set `HOME` or `GDDL_JARS`",
)
DELTA_UNSUPPORTED = Code(
    "DELTA_UNSUPPORTED",
    "setup",
    "this Delta does not fit this Spark or airflow-gddl; nothing was written",
    "use the pair that the message names",
)
DIALECT_BROKEN = Code(
    "DIALECT_BROKEN",
    "fatal",
    "the package of a row's `dialect` can't be imported",
    "fix or reinstall that package and its dependencies",
)
DIALECT_UNKNOWN = Code(
    "DIALECT_UNKNOWN",
    "fatal",
    "no package where the job runs provides the row's `dialect`",
    "correct `dialect`, or install its package with the job",
)
EJECT_UNSUPPORTED = Code(
    "EJECT_UNSUPPORTED",
    "fatal",
    "a plain job would load this table wrongly; nothing was written",
    "as the message says; see [Leave](tasks/remove.md#leave-a-plain-job-in-place-of-a-row)",
)
ENVIRONMENT_FAILED = Code(
    "ENVIRONMENT_FAILED",
    "fatal",
    "pip could not build the wheel or environment, or fetch libraries",
    "give pip access to an index, or bundle with `--no-environment`",
)
ERASED_IN_FILES = Code(
    "ERASED_IN_FILES",
    "warning",
    "landing files still hold an erased key",
    "delete these files whole; rewritten load files undo later changes",
)
ERASED_KEY_MOVED = Code(
    "ERASED_KEY_MOVED",
    "warning",
    "rows moved to an erased key; their former keys keep older changes",
    "`gddl erase --table T --key COLUMN=VALUE` for these keys too",
)
ERASED_NOTHING = Code(
    "ERASED_NOTHING",
    "warning",
    "no table or landing file holds the erased key; it stays excluded",
    "check that the key is written as in the source",
)
EXECUTOR_UNFIT = Code(
    "EXECUTOR_UNFIT",
    "fatal",
    "Python on the executors fails or lacks a package; nothing was written",
    "set `archive` or `python` under `runners`",
)
EXPLAIN_BUSY = Code(
    "EXPLAIN_BUSY",
    "retriable",
    "other jobs are already reading key histories or tables for the page",
    "try again in some seconds",
)
EXPLAIN_TOO_LONG = Code(
    "EXPLAIN_TOO_LONG",
    "retriable",
    "a key's history, or a table, was not read within 60 s",
    "`gddl explain --table T --key COLUMN=VALUE`",
)
FEATURE_MISSING = Code(
    "FEATURE_MISSING",
    "fatal",
    "the installation lacks a feature that the row uses",
    "install all of airflow-gddl where the job runs",
)
FOLDER_TAKEN = Code(
    "FOLDER_TAKEN", "fatal", "the folder is not empty or has these files; nothing was written", "name another folder"
)
ICEBERG_BEHIND = Code(
    "ICEBERG_BEHIND",
    "warning",
    "the Iceberg metadata is older than the Delta table, which is current",
    "as the message says; the next run tries again",
    COMMITS,
    when_idle=True,
)
ICEBERG_CONTENDED = Code(
    "ICEBERG_CONTENDED",
    "retriable",
    "other writers kept changing the table's Iceberg metadata",
    "nothing; the next run tries again",
)
INITIAL_LOAD_REFUSED = Code(
    "INITIAL_LOAD_REFUSED",
    "fatal",
    "a full load from the source database is not possible for this table, or a value of it",
    "as the message says; see [Initial load](initial-load.md); `--again` if already loaded",
)
INITIAL_LOAD_TEXT = Code(
    "INITIAL_LOAD_TEXT",
    "warning",
    "source columns without an equal type are loaded as text",
    "set a type in `options.types`, or nothing",
)
INTERNAL = Code("INTERNAL", "fatal", "the command has a defect", "run again with `--debug` and report it")
JAVA_MISSING = Code(
    "JAVA_MISSING",
    "setup",
    "no working Java was found; tables with new files were not written",
    "install Java 17 or newer, set `JAVA_HOME`, or try [`GDDL_WITHOUT_SPARK=1`](metadata.md)",
)
JOB_CANCELLED = Code(
    "JOB_CANCELLED",
    "retriable",
    "a signal stopped the run before this table was done",
    "run again; it resumes where it stopped",
)
JOB_DIED = Code(
    "JOB_DIED",
    "retried",
    "the job's process ended before this table was done",
    "see its log; at exit status 137 give more memory",
)
JOB_NOT_DEPLOYED = Code(
    "JOB_NOT_DEPLOYED",
    "fatal",
    "the platform has no job for the tier, or several",
    "`gddl deploy databricks` or `gddl deploy glue`",
)
JOB_NOT_STARTED = Code(
    "JOB_NOT_STARTED", "setup", "the job's process did not start, or `[gddl] job_command` is not `gddl-job`"
)
KEY_INVALID = Code(
    "KEY_INVALID",
    "fatal",
    "the key is incomplete, of another type, or ambiguous; nothing was written",
    "`--key COLUMN=VALUE` for each key column, as the message says",
)
KEY_NOT_FOUND = Code(
    "KEY_NOT_FOUND",
    "fatal",
    "nothing is known of this key, and it was not erased",
    "check its spelling; `gddl run --dry-run` shows files not loaded yet",
)
LAKE_NOT_WRITABLE = Code(
    "LAKE_NOT_WRITABLE", "fatal", "no log can be written below the lake", "check `lake` and its permissions"
)
LAKE_UNREADABLE = Code(
    "LAKE_UNREADABLE", "retriable", "the records of runs can't be read", "check `lake` and its credentials"
)
LANDING_FILES_KEPT = Code(
    "LANDING_FILES_KEPT",
    "warning",
    "files older than `landing_retention` could not be removed or moved",
    "resolve quarantined rows, or rename the file, as the message says",
)
LANDING_MISSING = Code(
    "LANDING_MISSING",
    "retriable",
    "the landing root is missing, e.g. not mounted; nothing was changed",
    "mount or create it, or correct `landing`; run again",
)
LANDING_MOVED = Code(
    "LANDING_MOVED",
    "fatal",
    "a table without keys has another landing folder; nothing was written",
    "restore the folder's name; if all files moved, `gddl reload --from-files --table T`",
)
LANDING_RETENTION_REFUSED = Code(
    "LANDING_RETENTION_REFUSED",
    "fatal",
    "`landing_retention.to` is within landing or lake, or in another bucket",
    "name a folder of the same bucket, outside both",
)
LOG_FILES_UNKNOWN = Code(
    "LOG_FILES_UNKNOWN",
    "warning",
    "a Delta log has unknown kinds of files; nothing of it was removed",
    "set `delta.checkpointPolicy` to `classic`, or upgrade `airflow-gddl`",
)
MASTER_UNREACHABLE = Code(
    "MASTER_UNREACHABLE",
    "retriable",
    "the standalone cluster's master does not answer",
    "start it, or correct `master`",
)
NOT_NULL_UNSUPPORTED = Code(
    "NOT_NULL_UNSUPPORTED",
    "fatal",
    "replacing the table's schema would drop its `NOT NULL` constraints",
    "`DROP NOT NULL`, and use a `CHECK` ([Constraints](layout.md#constraints))",
)
NOT_PUBLISHED = Code(
    "NOT_PUBLISHED",
    "fatal",
    "the source does not [publish](capture.md#what-the-source-needs) all of the table; nothing was read",
    "run the message's statement; `gddl check` shows all",
)
NO_EXECUTORS = Code(
    "NO_EXECUTORS",
    "retriable",
    "the cluster gave no executor within `start_timeout`",
    "free resources, ask for less, or check network and versions",
)
NO_TABLES = Code("NO_TABLES", "fatal", "the metadata has no enabled table", "add a metadata row")
OUT_OF_MEMORY = Code(
    "OUT_OF_MEMORY",
    "retried",
    "Spark, or a task that read the named file, ran out of memory",
    "use a larger tier, or a smaller `max_bytes_per_batch`",
)
PACKAGE_MISSING = Code(
    "PACKAGE_MISSING",
    "setup",
    "a required Python package is missing; for a catalog the data is loaded",
    "run the message's `pip install` where the job runs",
)
PLATFORM_CHECK_FAILED = Code(
    "PLATFORM_CHECK_FAILED",
    "fatal",
    "a store, runner or table failed a check of the platform",
    "as the message says; see [the check](platforms/check.md)",
)
PLATFORM_NOT_REMOVED = Code(
    "PLATFORM_NOT_REMOVED",
    "fatal",
    "what the check created could not be removed completely",
    "grant the right to delete; remove the named folder or run",
)
PLATFORM_REFUSED = Code(
    "PLATFORM_REFUSED",
    "fatal",
    "the platform refused the request, or its credentials or region are not set",
    "as the message says; often a right is missing",
)
PLATFORM_UNREACHABLE = Code(
    "PLATFORM_UNREACHABLE",
    "retriable",
    "the platform does not answer, is busy, or reached a quota",
    "nothing, the call is retried; at a full quota lower `slots`",
)
PROPERTY_UNKNOWN = Code(
    "PROPERTY_UNKNOWN",
    "fatal",
    "the job's Delta Lake does not have this table property",
    "remove it from `table_properties`",
)
REBUILD_NEEDS_FILES = Code(
    "REBUILD_NEEDS_FILES",
    "fatal",
    "the lake lacks values that the changed row needs",
    "restore the metadata row, or `gddl reload --from-files --table T`",
)
REBUILD_REFUSED = Code(
    "REBUILD_REFUSED",
    "fatal",
    "stored values do not fit the changed row",
    "restore `keys`, `sequence_by` or `options.types`, or `gddl reload --from-files --table T`",
)
RELOAD_UNCONFIRMED = Code(
    "RELOAD_UNCONFIRMED",
    "fatal",
    "a reload would lose data that no landing file has; nothing changed",
    "restore the files; or confirm: `--yes`, *Confirm the reload* in Airflow",
)
REMOTE_RUN_CANCELLED = Code(
    "REMOTE_RUN_CANCELLED",
    "fatal",
    "the run was cancelled on the platform before this table was loaded",
    "run again; it resumes where it stopped",
)
REMOTE_RUN_FAILED = Code(
    "REMOTE_RUN_FAILED",
    "fatal",
    "the run ended without a result for this table",
    "see the platform's message and the run's page",
)
REMOTE_RUN_LOST = Code("REMOTE_RUN_LOST", "fatal", "the platform no longer knows the run", "run again")
REPLICA_MISSING = Code("REPLICA_MISSING", "fatal", "the table was never loaded", "load it")
RESYNC_ROWS_REFUSED = Code(
    "RESYNC_ROWS_REFUSED", "fatal", "source rows can't be ordered among this table's changes; nothing was written"
)
RESYNC_WAITS = Code(
    "RESYNC_WAITS",
    "warning",
    "files with rows read by `gddl resync` wait for other files",
    "release or load those; the next run loads these rows",
)
RETENTION_UNREADABLE = Code(
    "RETENTION_UNREADABLE",
    "fatal",
    "`delta.deletedFileRetentionDuration` is not a duration; nothing was removed",
    "write e.g. `interval 30 days`",
)
REVISION_UNREADABLE = Code(
    "REVISION_UNREADABLE",
    "fatal",
    "the Git revision, or the metadata folder in it, can't be read",
    "name a commit, tag or branch; in CI, fetch it",
)
RUNNER_BROKEN = Code(
    "RUNNER_BROKEN",
    "setup",
    "the package of a runner can't be imported, or gives no descriptor",
    "fix or reinstall that package and its dependencies",
)
RUNNER_NEEDS_S3 = Code(
    "RUNNER_NEEDS_S3",
    "fatal",
    "a platform's runner can't use a root on this machine or a volume",
    "set `landing` and `lake` to `s3://`",
)
RUNNER_SETTINGS_INVALID = Code(
    "RUNNER_SETTINGS_INVALID", "fatal", "a field under `runners` is wrong", "correct the field that the message names"
)
RUNNER_UNKNOWN = Code(
    "RUNNER_UNKNOWN",
    "problem",
    "neither this version nor an installed package has this runner",
    "set `runner: local`, or one that the message names",
)
SHARDS_UNSUPPORTED = Code(
    "SHARDS_UNSUPPORTED",
    "fatal",
    "a table with `shards` does not support this operation; nothing was done",
    "[load it again](sources.md#load-a-sharded-table-again) instead",
)
SOURCE_ACCESS_MISSING = Code(
    "SOURCE_ACCESS_MISSING",
    "fatal",
    "a source's `aws_conn_id` is not set or empty; other sources are loaded",
    "set `AIRFLOW_CONN_<ID>` where the job runs ([Credentials of a source](sources.md#credentials-of-a-source))",
)
SOURCE_CONNECTION_MISSING = Code(
    "SOURCE_CONNECTION_MISSING",
    "fatal",
    "the connection to the source is not set or invalid",
    "set the variable, or `AIRFLOW_CONN_<NAME>`",
)
SOURCE_CONNECTION_REFUSED = Code(
    "SOURCE_CONNECTION_REFUSED",
    "fatal",
    "a row names a connection that the deployment does not permit",
    "add it to `GDDL_SOURCE_CONNECTIONS`, or name it `GDDL_SOURCE_…` ([Connections to source "
    "databases](security.md#connections-to-source-databases))",
)
SOURCE_DIFFERENT = Code(
    "SOURCE_DIFFERENT",
    "fatal",
    "keys differ from the source, and no pending change explains it",
    "`gddl resync --differences --table T`, or `gddl load --again --table T`",
    ("verify",),
    judged=True,
)
SOURCE_DRIVER_MISSING = Code(
    "SOURCE_DRIVER_MISSING",
    "fatal",
    "the database's driver is missing, or SQLAlchemy is too old",
    "install it where jobs run, or `gddl onboard SOURCE`",
)
SOURCE_NOT_COMPARABLE = Code(
    "SOURCE_NOT_COMPARABLE",
    "fatal",
    "the table has `where`, or key columns that are masked or of types that can't be compared",
    "remove `verify_connection`; `gddl verify` compares with its changes",
)
SOURCE_LOG_LOST = Code(
    "SOURCE_LOG_LOST",
    "fatal",
    "the source's [log](capture.md#when-the-log-does-not-go-on) or topic lost changes before a job read them",
    "`gddl load --again --table T`; for a topic delete the named document, take a new snapshot",
)
SOURCE_LOG_REFUSED = Code(
    "SOURCE_LOG_REFUSED",
    "fatal",
    "the source's [log](capture.md#what-the-source-needs) can't be read: a setting, right, "
    "publication or key is missing",
    "run the message's statement; `gddl check` shows all",
)
SOURCE_LOG_REPLACED = Code(
    "SOURCE_LOG_REPLACED",
    "fatal",
    "the table's topic was deleted, recreated, or cut; nothing was written",
    "delete the named document; let the connector take a new snapshot",
)
SOURCE_LOG_STOPPED = Code(
    "SOURCE_LOG_STOPPED",
    "fatal",
    "a change in the log can't be read; later ones wait, other tables continue",
    "correct the value in the source, then `gddl load --again --table T`",
)
SOURCE_MISSING = Code(
    "SOURCE_MISSING",
    "setup",
    "the installation lacks the module that reads the table's source",
    "install all of airflow-gddl where the job runs",
)
SOURCE_REFUSED = Code(
    "SOURCE_REFUSED",
    "fatal",
    "the source, Kafka or schema registry refused the login, database or setting",
    "correct the connection, or the user's rights",
)
SOURCE_ROWS_HIDDEN = Code(
    "SOURCE_ROWS_HIDDEN",
    "fatal",
    "PostgreSQL's row-level security hides rows from the user; nothing was read",
    "`ALTER ROLE … BYPASSRLS`, or use a user without policies",
)
SOURCE_TABLE_ALTERED = Code(
    "SOURCE_TABLE_ALTERED",
    "fatal",
    "the source table was altered [as no log tells](capture.md#alterations-that-no-log-tells); nothing was loaded",
    "`gddl load --again --table T`",
)
SOURCE_TABLE_MISSING = Code(
    "SOURCE_TABLE_MISSING",
    "fatal",
    "the source has no such table, does not show it, or renamed it",
    "check connection and rights; if renamed, correct `table` and `target`, then `gddl load --table T`",
)
SOURCE_TEXT_INVALID = Code(
    "SOURCE_TEXT_INVALID",
    "fatal",
    "PostgreSQL can't convert a text to UTF-8; a log stops for all tables",
    "correct the text at the source; for a log, then `gddl load --again --table T`",
)
SOURCE_UNREACHABLE = Code(
    "SOURCE_UNREACHABLE",
    "retriable",
    "the source, Kafka or the schema registry does not respond",
    "run again; check the connection",
)
SPARK_HOME_INVALID = Code(
    "SPARK_HOME_INVALID", "setup", "`spark_home` holds no `bin/spark-submit`", "name the folder of an unpacked Spark"
)
SPARK_UNSUPPORTED = Code(
    "SPARK_UNSUPPORTED",
    "setup",
    "Spark is older than 4.0, or is 5 or newer; nothing was written",
    "use a version that the message names",
)
SPEC_INVALID = Code(
    "SPEC_INVALID", "fatal", "the job specification can't be read, or has wrong fields", "create it with `gddl`"
)
TABLE_NOT_LOADED = Code(
    "TABLE_NOT_LOADED", "warning", "the table was never loaded, so there is nothing to compare", "load it"
)
TABLE_ROW_BAD = Code(
    "TABLE_ROW_BAD", "fatal", "the row of the named table is invalid", "`gddl validate` shows the problems"
)
TABLE_UNKNOWN = Code(
    "TABLE_UNKNOWN", "fatal", "no row has the named table", "correct the name; the message suggests some"
)
TABLE_WITHOUT_KEYS = Code(
    "TABLE_WITHOUT_KEYS",
    "fatal",
    "the table has no keys, or was never loaded",
    "load it first; rows without keys can't be distinguished",
)
TARGET_CHANGED = Code(
    "TARGET_CHANGED",
    "warning",
    "the target of the table changed; it is loaded again, the former one stays",
    "remove the [former table](sources.md#rename-a-table) later, or set the target back",
)
TOPIC_UNREADABLE = Code(
    "TOPIC_UNREADABLE",
    "fatal",
    "messages of a topic are not JSON or registered Avro; none was skipped",
    "set `options.schema_registry`, or let the connector write JSON or Avro",
)
UNEXPECTED = Code(
    "UNEXPECTED",
    "retried",
    "an unexpected error occurred; no data is lost",
    "report it with the job's log; the next run resumes",
)
WINDOW_DIFFERENT = Code(
    "WINDOW_DIFFERENT",
    "fatal",
    "rows of a time window are missing, or differ from the source",
    "deliver the files again, then `gddl run`; else `gddl resync --differences --table T`",
    ("verify",),
    judged=True,
)
