"""Documents in which the lake names its consistent cuts; commands and jobs read and change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import CUT_MISSING, LEDGER_DAMAGED, LEDGER_NEWER
from airflow_gddl.contract.consistent_cut import Cut, cut_path, cuts_folder
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import CUTS, join
from airflow_gddl.stores.storage import Storage, read_if_there, update_object


def read_cut(store: Storage, lake: str, name: str) -> Cut:
    """The document of a cut.

    Raises:
        FatalError: `CUT_MISSING`: there is none; as `cuts`.
    """
    return _read(read_if_there(store, cut_path(lake, name)), lake, name)


def cuts(store: Storage, lake: str) -> Iterator[Cut]:
    """All cuts, by their names; without those that are dropped meanwhile.

    Raises:
        FatalError: `LEDGER_DAMAGED`: a document can't be read, or names what is no part of its cut.
    """
    for item in list(store.list(cuts_folder(lake))):
        data = read_if_there(store, item.path) if item.name.endswith(".json") else None
        if data is not None:
            yield _read(data, lake, item.name.removesuffix(".json"))


def change_cut(store: Storage, lake: str, name: str, change: Callable[[Cut], Cut]) -> Cut:
    """Change the document of a cut, which others change too; the changed cut.

    Args:
        change: from the document that is there; called again where it was changed meanwhile.

    Raises:
        FatalError: as `read_cut`, and what `change` raises.
        RetriableError: `STATE_CONTENDED`.
    """
    path = cut_path(lake, name)
    return update_object(
        store, path, lambda data: change(_read(data, lake, name)), lambda cut: codec.to_json(cut).encode()
    )


def _read(data: bytes | None, lake: str, name: str) -> Cut:
    if data is None:
        raise FatalError(CUT_MISSING, f"there is no cut {name}", remedy="name one that `gddl as-of list` shows")
    path = cut_path(lake, name)
    remedy = f"restore it from a version; or delete it with the folder {join(lake, CUTS, name)}, and make the cut again"
    try:
        cut = codec.from_json(Cut, data.decode())
    except codec.NewerDocumentError as error:
        what = f"a newer airflow-gddl wrote it: {error.what}"
        raise FatalError(LEDGER_NEWER, what, where=path, remedy="install that version here, too") from error
    except (FatalError, ValueError) as error:
        raise FatalError(LEDGER_DAMAGED, f"unreadable: {error}", where=path, remedy=remedy) from error
    own = f"{CUTS}/{name}/"
    if cut.name != name or not all(_is_below(own, one.folder) for one in cut.tables):
        what = f"it names tables that are not below {own}, or another cut"
        raise FatalError(LEDGER_DAMAGED, what, where=path, remedy=remedy)
    return cut


def _is_below(own: str, folder: str) -> bool:
    return folder.startswith(own) and not {"", ".", ".."} & {*folder.split("/")}
