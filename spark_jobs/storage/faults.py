"""What a store raises, as errors of our own with a code and a way out."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as remote

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.s3_errors import s3_error

_S3 = "s3://"
_REFUSED = (remote.InvalidPathError, remote.NotSupportedError, remote.UnknownConfigurationKeyError)
_STATUS, _FINAL = re.compile(r"status code: ([0-9]{3})"), ("401", "403", "404")
_UNUSABLE = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Errors of file systems and of obstore, raised inside, as errors of our own; absence stays FileNotFoundError."""
    try:
        yield
    except GddlError:
        raise
    except FileNotFoundError as error:
        fault = _bucket_fault(path, error)
        if fault is None:
            raise
        raise fault from error
    except OSError as error:
        raise _bucket_fault(path, error) or os_error(error, path) from error
    except (remote.PermissionDeniedError, remote.UnauthenticatedError) as error:
        raise _bucket_fault(path, error) or _denied(path, error) from error
    except (*_REFUSED, ValueError) as error:
        raise _unusable(path, error) from error
    except remote.BaseError as error:
        raise _bucket_fault(path, error) or _generic(path, error) from error


def _bucket_fault(path: str, error: Exception) -> GddlError | None:
    """What concerns the whole bucket; null for local paths."""
    return s3_error(str(error), path) if path.startswith(_S3) else None


def os_error(error: OSError, path: str) -> GddlError:
    """The family of an operating-system error other than absence."""
    if error.errno in _DENIED:
        return _denied(path, error)
    return _unusable(path, error) if error.errno in _UNUSABLE else _busy(path, error)


def _generic(path: str, error: Exception) -> GddlError:
    """obstore tells the status of a failed listing only in the message."""
    status = _STATUS.search(str(error))
    if status is None or status[1] not in _FINAL:
        return _busy(path, error)
    return _unusable(path, error) if status[1] == "404" else _denied(path, error)


def _denied(path: str, error: Exception) -> FatalError:
    what = f"no permission: {_first_line(error)}"
    return FatalError("STORAGE_DENIED", what, where=path, remedy="grant the job access")


def _unusable(path: str, error: Exception) -> FatalError:
    remedy = "correct the path or the settings of the store"
    return FatalError("STORAGE_UNUSABLE", _first_line(error), where=path, remedy=remedy)


def _busy(path: str, error: Exception) -> RetriableError:
    return RetriableError("STORAGE_BUSY", f"the store failed: {_first_line(error)}", where=path, remedy="run again")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
