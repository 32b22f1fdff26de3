"""A problem file's plain content to what it says, checked, with refusals that name the line."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from ..errors import InputError
from ..tables import suggest
from .schema import LOSSES, RISKS, SOLVERS, ProblemFile
from .sections import Section


def parse(content: dict[str, Any], source: str, text: str = "", kind: type[Section] = ProblemFile) -> Any:
    """Checked content of a kind of file from plain values; the first thing wrong is refused."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{source}{_message(error, text)}") from None
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None


def risk_from_words(words: str) -> dict[str, Any]:
    """`cvar:0.9` as the table `[risk]` would have it."""
    kind, colon, number = words.partition(":")
    known = RISKS.get(kind)
    if known is None or kind == "mixture":
        names = [name for name in RISKS if name != "mixture"]
        raise InputError(
            f"--risk {words!r}: there is no risk {kind!r}{suggest(kind, names) or '; ' + ', '.join(names)}"
        )
    table: dict[str, Any] = {"kind": kind}
    if colon:
        key = known.alone()
        if key is None:
            raise InputError(f"--risk {words!r}: {kind} takes no number")
        try:
            table[key] = float(number)
        except ValueError:
            raise InputError(f"--risk {words!r}: {number!r} is not a number; write it like cvar:0.9") from None
    return table


def _message(error: ValidationError, text: str) -> str:
    """What is wrong with a file's content, and in which line."""
    # Of a value that could be several things, the one it came closest to being.
    first = max(error.errors(include_url=False), key=lambda each: len(_path(each)))
    path = _path(first)
    shown = first["input"]
    if first["type"] == "unknown_key":
        key = first.get("ctx", {})["key"]
        return f"{_line_of(text, [*path, key.strip(chr(39))])}: {first['msg']}" + (
            f" in [{'.'.join(path)}]" if path else ""
        )
    name = ".".join(path)
    # What a class refuses begins with its name; pydantic begins its sentences with a capital.
    said = first["msg"] if first["type"] == "settings" else first["msg"][:1].lower() + first["msg"][1:]
    if first["type"] == "missing":
        said = "is missing"
    elif first["type"] == "union_tag_not_found":
        said = f"has no kind; use {_kinds(path)}"
    elif first["type"] == "union_tag_invalid":
        tag, kinds = (first.get("ctx", {})[name] for name in ("tag", "expected_tags"))
        near = suggest(tag, [kind.strip(" '") for kind in kinds.split(",")])
        said = f"kind {tag!r} is unknown{near or '; use ' + kinds}"
    elif isinstance(shown, str | int | float) and first["type"] not in ("support", "settings", "rule"):
        said += f", got {str(shown)[:60]!r}" if isinstance(shown, str) else f", got {str(shown)[:40]}"
    return f"{_line_of(text, path)}: {name and name + ': '}{said}"


def _path(error: Any) -> list[str]:
    """The keys of the file that lead to what is wrong."""
    return [str(part) for part in error["loc"] if not _is_tag(part)]


def _kinds(path: list[str]) -> str:
    return ", ".join(RISKS if "risk" in path else LOSSES)


def _is_tag(part: Any) -> bool:
    """Whether a step of an error's path is pydantic's name for a member of a union, not a key of the file."""
    if not isinstance(part, str):
        return False
    return part in (*RISKS, *LOSSES, *SOLVERS) or (part in ("str", "int", "float", "constrained-int") or "[" in part)


def _line_of(text: str, path: list[str]) -> str:
    """`, line 7` of the key at a path, where it can be found in the text."""
    words = [word for word in path if not word.isdigit()]
    if not words:
        return ""
    table, best = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
        if header and "=" not in line.split("]")[0]:
            table = header.group(1).replace('"', "").replace(" ", "")
            if table == ".".join(words):
                best = number
            continue
        key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if key:
            full = ".".join(filter(None, [table, key.group(1).replace('"', "").replace("'", "")]))
            if full == ".".join(words) or (not best and ".".join(words).startswith(full + ".")):
                best = number
    return f", line {best}" if best else ""
