"""Policies as JSON: few keys, plain numbers, so that a few lines of any language can act by one.

The manual's page on deploying a policy gives the schema. Numbers are written so that they read back to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import write_whole

FORMAT = "prudent policy 1"

# Lists and tables take far more memory than the text of them; a table of two million states fits.
LARGEST_FILE, MOST_PARTS = 2**28, 2**22


def write_policy_file(path: str | Path, kind: str, content: Mapping[str, Any]) -> Path:
    """Write a policy of a kind; the file is replaced whole or not at all."""
    text = json.dumps({"format": FORMAT, "kind": kind, **content}, allow_nan=False, ensure_ascii=False)
    data = (text + "\n").encode()
    if len(data) > LARGEST_FILE or _parts(data) > MOST_PARTS:
        raise InputError(f"{path}: would be larger than a policy may be that is read back; save its array by NumPy")
    return write_whole(path, data)


def read_policy_file(path: str | Path) -> dict[str, Any]:
    """The content of a policy's file; what is none is refused."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if path.stat().st_size > LARGEST_FILE:
        raise InputError(f"{path}: is larger than {LARGEST_FILE >> 20} MiB; it is no policy that prudent wrote")
    try:
        data = path.read_bytes()
        if _parts(data) > MOST_PARTS:
            raise InputError(f"{path}: has more parts than any policy that prudent wrote")
        content = json.loads(data.decode())
    except InputError:
        raise
    except (ValueError, RecursionError, UnicodeDecodeError, OSError):
        raise InputError(f"{path}: is not JSON; name a file that policy.save(...) wrote") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path}: has no format {FORMAT!r}; name a file that policy.save(...) wrote")
    return content


def _parts(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def policy_from(path: str | Path, kinds: Mapping[str, Any]) -> Any:
    """The policy of a file, made by the class of its kind; what the class refuses is refused with the file's name."""
    content = read_policy_file(path)
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{path}: holds a policy of the kind {str(kind)[:40]!r}; here it must be {' or '.join(kinds)}")
    try:
        return kinds[kind].from_content(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise InputError(f"{path}: is damaged ({reason}); save the policy again") from None
