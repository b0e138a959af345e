"""Codes of stores, claims and the ledger."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import Code

AWS_CONNECTION_INVALID = Code(
    "AWS_CONNECTION_INVALID", "fatal", "the Airflow connection of `aws_conn_id` is missing or unusable"
)
BASELINE_LOST = Code(
    "BASELINE_LOST",
    "fatal",
    "an [adopted](tasks/adopt.md) replica's `gddl.baseline` property differs from the ledger",
    "restore the property, or `gddl rebuild --table T`",
)
BATCH_UNBALANCED = Code(
    "BATCH_UNBALANCED",
    "fatal",
    "row counts of a batch do not add up; nothing was merged",
    "report it with the job's log",
)
BATCH_UNFINISHED = Code("BATCH_UNFINISHED", "fatal", "`gddl verify` found an unfinished batch", "run the table first")
CLAIM_DAMAGED = Code(
    "CLAIM_DAMAGED",
    "fatal",
    "a claim file is invalid; it holds no data of the table",
    "stop the table's runs, then delete the named file",
)
CLAIM_LOST = Code("CLAIM_LOST", "retriable", "another run took over the table's claim; nothing is lost", "run again")
DELTA_CONFLICT = Code(
    "DELTA_CONFLICT", "retriable", "another writer changed a table of this package", "run again; allow no other writers"
)
DISK_FULL = Code("DISK_FULL", "retriable", "no disk space is left; nothing is lost", "free space, then run again")
ERASED_BY_OTHER_KEYS = Code(
    "ERASED_BY_OTHER_KEYS",
    "fatal",
    "keys were erased under other key columns or masks",
    "restore `keys` and `mask`; or, once no landing file has those rows, delete the named folder",
)
ERASURE_SALT_MISSING = Code(
    "ERASURE_SALT_MISSING",
    "fatal",
    "the salt of erased keys' hashes is missing; nothing is loaded",
    "restore `_gddl/erased/salt.json`; or see [without one](repair.md#right-to-be-forgotten)",
)
FILES_CHANGED = Code(
    "FILES_CHANGED",
    "retriable",
    "files of a reload, snapshot or other table changed while they were read; nothing was written",
    "run it again, or wait for the next run; keep VACUUM of other tables away meanwhile",
)
FILES_UNSETTLED = Code(
    "FILES_UNSETTLED",
    "warning",
    "new files changed within `settle`, or during reading, and were left",
    "nothing; a later run reads them",
)
FILE_REWRITTEN = Code(
    "FILE_REWRITTEN",
    "warning",
    "change files were written again; rows that they now lack stay",
    "nothing, or `gddl reload --from-files --table T`",
)
FOREIGN_ROWS = Code(
    "FOREIGN_ROWS",
    "fatal",
    "another writer inserted rows, changed them, or replaced a table",
    "delete them, or `gddl rebuild --table T`",
)
GENERATIONS_INFERRED = Code(
    "GENERATIONS_INFERRED",
    "warning",
    "the full load of files was inferred, as no ledger records it",
    "`gddl verify --source-connection NAME`; if wrong, set `generations`, or `gddl reload --from-files --table T`",
    ("run", "reload"),
)
GENERATIONS_UNKNOWN = Code(
    "GENERATIONS_UNKNOWN",
    "fatal",
    "the full load of files can't be determined; nothing was written",
    "set `generations`, or `gddl reload --from-files --table T`, as the message says",
)
LEDGER_BEHIND = Code(
    "LEDGER_BEHIND",
    "fatal",
    "the tables hold a batch that the ledger does not know",
    "restore the newest ledger, or `gddl rebuild --table T`; with `shards` [load it "
    "again](sources.md#load-a-sharded-table-again)",
)
LEDGER_CONFLICT = Code(
    "LEDGER_CONFLICT", "retriable", "another run committed this batch, or cleaned up meanwhile", "run again"
)
LEDGER_DAMAGED = Code(
    "LEDGER_DAMAGED",
    "fatal",
    "a ledger file is damaged or can't be read",
    "restore it, or see [troubleshooting](on-call.md#a-ledger-is-damaged-or-lost)",
)
LEDGER_MISSING = Code(
    "LEDGER_MISSING",
    "fatal",
    "tables exist without a ledger, or `gddl adopt` was interrupted",
    "restore it, `gddl rebuild --table T`, or `gddl adopt --table T` again",
)
LEDGER_NEWER = Code("LEDGER_NEWER", "fatal", "a newer airflow-gddl wrote the ledger", "install that version here, too")
NEEDS_MANY_TASKS = Code(
    "NEEDS_MANY_TASKS",
    "warning",
    "the table or batch did not fit one task; many tasks loaded it",
    "nothing, or use a tier with `tasks: many`",
)
NEEDS_SPARK = Code(
    "NEEDS_SPARK",
    "fatal",
    "the table needs Spark, which the job or page does not start",
    "unset `GDDL_WITHOUT_SPARK`; for the page `gddl explain --table T --key COLUMN=VALUE`",
)
RELOAD_UNFINISHED = Code(
    "RELOAD_UNFINISHED",
    "fatal",
    "a reload of a snapshot table was interrupted before it began",
    "run `gddl reload --from-files --table T` again",
)
S3_BUCKET_MISSING = Code(
    "S3_BUCKET_MISSING",
    "fatal",
    "the bucket of a root does not exist",
    "correct the root or endpoint, or create the bucket",
)
S3_CREDENTIALS_EXPIRED = Code(
    "S3_CREDENTIALS_EXPIRED",
    "retried",
    "the S3 credentials have expired",
    "fetch new ones, or use a role that renews them",
)
S3_CREDENTIALS_MISSING = Code(
    "S3_CREDENTIALS_MISSING",
    "retried",
    "no S3 credentials are found, or a role can't be assumed",
    "set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, a profile, or `aws_conn_id`",
)
S3_CREDENTIALS_REFUSED = Code("S3_CREDENTIALS_REFUSED", "fatal", "S3 does not know the credentials", "correct them")
S3_ENDPOINT_INVALID = Code(
    "S3_ENDPOINT_INVALID",
    "fatal",
    "the S3 endpoint is no URL, or plain HTTP to another machine",
    "correct it; `AWS_ALLOW_HTTP=true` allows plain HTTP",
)
S3_REGION_WRONG = Code("S3_REGION_WRONG", "fatal", "the bucket is in another region", "set `AWS_REGION`")
S3_UNREACHABLE = Code(
    "S3_UNREACHABLE", "retriable", "the S3 endpoint does not answer", "check endpoint, region and network"
)
SNAPSHOT_CLEARED = Code(
    "SNAPSHOT_CLEARED", "warning", "no snapshot of the table is held any more", "nothing", when_idle=True
)
SNAPSHOT_HELD = Code(
    "SNAPSHOT_HELD",
    "warning",
    "a snapshot was not taken; the table needs attention",
    "as the message says, e.g. `gddl release sweep --table T` ([Snapshots](snapshots.md#what-is-not-taken))",
    ("run", "reload", "release"),
    when_idle=True,
)
SNAPSHOT_INCOMPLETE = Code(
    "SNAPSHOT_INCOMPLETE",
    "warning",
    "a new snapshot of the source is incomplete; older rows stay",
    "wait, take a new one, or `gddl release sweep --table T` if complete",
    ("run", "reload", "release"),
)
SNAPSHOT_MERGED = Code(
    "SNAPSHOT_MERGED",
    "warning",
    "a new snapshot was merged without removing rows that it lacks",
    "if the source deleted rows, move old files out, then `gddl reload --from-files --table T`",
    ("run", "reload"),
)
SNAPSHOT_WAITING = Code(
    "SNAPSHOT_WAITING",
    "warning",
    "a snapshot of the table is not complete yet",
    "nothing; if complete, set [`options.complete`](snapshots.md#when-a-snapshot-is-complete)",
)
SPARK_GONE = Code(
    "SPARK_GONE",
    "retriable",
    "Spark's Java process ended during the run, often for lack of memory",
    "run again; give the tier less memory, or the machine more",
)
STORAGE_BUSY = Code(
    "STORAGE_BUSY",
    "retriable",
    "a landing folder or the lake failed despite the client's retries",
    "run again; if it persists, check mount, network, region, permissions",
)
STORAGE_DENIED = Code(
    "STORAGE_DENIED",
    "fatal",
    "permission for a folder is missing; other tables continue",
    "grant the role or user list, read and write there",
)
STORAGE_UNUSABLE = Code(
    "STORAGE_UNUSABLE",
    "fatal",
    "a path is not a usable folder; other tables continue",
    "correct the path or the store's settings",
)
SWEEP_HELD = Code(
    "SWEEP_HELD",
    "warning, fatal",
    "a reload lacks more rows than `sweep_limit` allows; these rows stay",
    "`gddl release sweep --table T` if deleted at the source; else load again",
    ("run", "reload", "release"),
)
SWEEP_PENDING = Code(
    "SWEEP_PENDING",
    "warning",
    "some load files were not written again; their rows stay until then",
    "nothing, or `gddl release sweep --table T` when the reload is complete",
)
TABLES_MISSING = Code(
    "TABLES_MISSING",
    "fatal",
    "Delta tables that the ledger knows are missing",
    "restore the tables, or `gddl rebuild --table T`",
)
TABLE_BUSY = Code(
    "TABLE_BUSY",
    "retriable",
    "another run, an unfinished load or open transactions hold the table",
    "wait (`--wait`), stop that run, or resume the load: `gddl load --table T`",
)
TABLE_DAMAGED = Code(
    "TABLE_DAMAGED",
    "fatal",
    "files of the table are missing or damaged; nothing was written",
    "restore a backup; else `gddl rebuild --table T` or `gddl reload --from-files --table T`, as the message says",
)
TABLE_NOT_OURS = Code(
    "TABLE_NOT_OURS",
    "fatal",
    "another job made the target Delta table; nothing was written",
    "[`gddl adopt --table T`](tasks/adopt.md), move the table, or set another `target`",
)
TABLE_TIMEOUT = Code(
    "TABLE_TIMEOUT",
    "retriable",
    "the table exceeded its tier's `task_timeout` and was stopped",
    "run again, it continues; or raise `task_timeout`",
)
VERIFY_DIFFERENT = Code(
    "VERIFY_DIFFERENT",
    "fatal",
    "the replica differs from its change table",
    "check the named keys, then `gddl rebuild --table T`",
    ("verify",),
    judged=True,
)
WORKER_DIED = Code(
    "WORKER_DIED",
    "retriable",
    "a process of the table died, of lack of memory or a fault",
    "see the log; use a tier with `tasks: many`, or less `task_memory`",
)
