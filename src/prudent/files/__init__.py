"""Files and folders of files that change whole or not at all, by one process at a time; needs Python alone."""

from .commits import MANIFEST, Manifest, Reading, clear_partials, commit, read_manifest, read_members, settle
from .locks import locked, remove_locks
from .whole import uninterrupted, write_whole

__all__ = [
    "MANIFEST",
    "Manifest",
    "Reading",
    "clear_partials",
    "commit",
    "locked",
    "read_manifest",
    "read_members",
    "remove_locks",
    "settle",
    "uninterrupted",
    "write_whole",
]
