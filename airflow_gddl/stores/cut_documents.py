"""Documents of cuts in the lake, as commands and jobs read and change them (docs/as-of.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from airflow_gddl.contract import codec
from airflow_gddl.contract.consistent_cut import Cut, cut_path, cuts_folder
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import CUTS, join
from airflow_gddl.stores.storage import Storage

_SUFFIX = ".json"


def read_cut(store: Storage, lake: str, name: str) -> Cut:
    """The document of a cut.

    Raises:
        FatalError: `CUT_MISSING`: there is none; as `cuts`.
    """
    return _tagged(store, lake, name)[0]


def cuts(store: Storage, lake: str) -> Iterator[Cut]:
    """All cuts, by their names; without those that are dropped meanwhile.

    Raises:
        FatalError: `LEDGER_DAMAGED`: a document can't be read, or names what is no part of its cut.
    """
    for item in list(store.list(cuts_folder(lake))):
        name = item.path.rpartition("/")[2]
        if name.endswith(_SUFFIX):
            try:
                yield read_cut(store, lake, name.removesuffix(_SUFFIX))
            except FatalError as error:
                if error.code != "CUT_MISSING":
                    raise


def change_cut(store: Storage, lake: str, name: str, change: Callable[[Cut], Cut]) -> Cut:
    """Change the document of a cut, which others change too.

    Args:
        change: from the document that is there; called again where it was changed meanwhile.

    Returns:
        the changed cut.

    Raises:
        FatalError: as `read_cut`, and what `change` raises.
    """
    while True:
        known, tag = _tagged(store, lake, name)
        changed = change(known)
        if store.swap_once(cut_path(lake, name), codec.to_json(changed).encode(), tag):
            return changed


def _tagged(store: Storage, lake: str, name: str) -> tuple[Cut, str]:
    path = cut_path(lake, name)
    try:
        data, tag = store.read_tagged(path)
    except FileNotFoundError:
        raise FatalError("CUT_MISSING", f"there is no cut {name}", remedy="gddl as-of list shows them") from None
    remedy = f"restore it from a version; or delete it with the folder {join(lake, CUTS, name)}, and make the cut again"
    try:
        cut = codec.from_json(Cut, data.decode())
    except codec.NewerDocumentError as error:
        what = f"a newer airflow-gddl wrote it: {error.what}"
        raise FatalError("LEDGER_NEWER", what, where=path, remedy="install that version here, too") from error
    except (FatalError, ValueError) as error:
        raise FatalError("LEDGER_DAMAGED", f"unreadable: {error}", where=path, remedy=remedy) from error
    own = f"{CUTS}/{name}/"
    if cut.name != name or not all(_is_below(own, one.folder) for one in cut.tables):
        what = f"it names tables that are not below {own}, or another cut"
        raise FatalError("LEDGER_DAMAGED", what, where=path, remedy=remedy)
    return cut, tag


def _is_below(own: str, folder: str) -> bool:
    return folder.startswith(own) and not {"", ".", ".."} & {*folder.split("/")}
