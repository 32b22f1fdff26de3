"""Files and folders of files that change whole or not at all, by one process at a time; needs Python alone."""

from .caching import cache_folder, is_safe
from .commits import (
    LARGEST_BESIDE,
    MANIFEST,
    Manifest,
    Reading,
    clear_partials,
    commit,
    read_manifest,
    read_members,
    settle,
    write_files,
)
from .locks import locked, remove_locks
from .whole import uninterrupted, write_whole
