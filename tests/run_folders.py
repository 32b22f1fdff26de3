"""Folders of runs made by hand, signed as anyone could sign them."""

import hashlib
import os

from prudent.files import MANIFEST, Manifest
from prudent.runs.checkpoint import checkpoint_from
from prudent.runs.folder import CHECKPOINT, FILES, read_run


def adopt(folder, **changes):
    """Write a manifest that fits whatever is in a folder; `changes` are fields of it."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".") and path.name != MANIFEST:
            data = path.read_bytes()
            files[path.name] = (len(data), hashlib.sha256(data).hexdigest())
    said = {"files": files, "token": "0" * 16, "process": os.getpid()} | changes
    (folder / MANIFEST).write_text(Manifest(**said).text())
    return folder


def read_checkpoint(folder):
    """The problem and the state of a finished run."""
    return checkpoint_from(read_run(folder, (CHECKPOINT,), apart=FILES).contents[CHECKPOINT], folder / CHECKPOINT)
