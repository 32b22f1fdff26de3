"""Templates compiled once for many processes; needs Jinja, and is imported only with it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from ..files import cache_folder, write_whole


class KeptTemplates(jinja2.BytecodeCache):
    """Bytecode in a folder of the user's own. Jinja's own cache would read a pickle from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load_bytecode(self, bucket: Bucket) -> None:
        """What was kept of the same source by the same versions, if it is whole."""
        with contextlib.suppress(OSError):
            content = (self.folder / bucket.key).read_bytes()
            digest, code = content[:32], content[32:]
            if digest == _digest(bucket, code):
                bucket.code = marshal.loads(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it for the next process, or do without."""
        code = marshal.dumps(bucket.code)
        with contextlib.suppress(OSError):
            write_whole(self.folder / bucket.key, _digest(bucket, code) + code)


def _digest(bucket: Bucket, code: bytes) -> bytes:
    versions = importlib.util.MAGIC_NUMBER + jinja2.__version__.encode()
    return hashlib.sha256(versions + bucket.checksum.encode() + code).digest()


def kept_templates() -> KeptTemplates | None:
    """Those of the user's cache; None where nothing can be kept there."""
    folder = cache_folder("templates")
    return None if folder is None else KeptTemplates(folder)
