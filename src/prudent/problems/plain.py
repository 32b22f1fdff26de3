"""Problem files as text: the examples, and plain content before what it means is looked at. Imports no JAX."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import write_files
from ..tables import suggest_file

LARGEST_FILE = 4 * 2**20

# Characters that are parsed again to find what is never closed: as many as the largest file has.
MOST_AGAIN = LARGEST_FILE

# Keys of a problem file have a few parts; the parser's time grows with the square of their number.
MOST_PARTS = 32
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')"""
_TEXT = r"""\"{3}(?s:\\.|[^\\])*?\"{3,5}|'{3}(?s:.)*?'{3,5}"""
_TOKEN = re.compile(
    rf"{_TEXT}|\#[^\n]*|(?P<long>{_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MOST_PARTS}}})|{_PART}",
)


def example(name: str) -> dict[str, str]:
    """The files of an example: `machine`, one that wears, or `cart`, on a rail where it is to stay in its place."""
    files = ("problem.toml", "log.csv") + (("costs.csv",) if name == "machine" else ())
    folder = resources.files("prudent.problems") / "examples" / name
    return {file: (folder / file).read_text(encoding="utf-8") for file in files}


def write_example(folder: str | Path = ".", force: bool = False) -> tuple[Path, ...]:
    """Write a commented example that solves as it is: `problem.toml`, `log.csv`, `costs.csv`.

    Args:
        folder: made if there is none.
        force: replace files of these names; refused otherwise.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in pr.write_example(folder)]
    ['problem.toml', 'log.csv', 'costs.csv']
    """
    return write_files(folder, example("machine"), force)


def write_linear_example(folder: str | Path = ".", force: bool = False) -> tuple[Path, ...]:
    """Write a commented example of a linear system that solves as it is: `problem.toml`, `log.csv`.

    Args:
        folder: made if there is none.
        force: replace files of these names; refused otherwise.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in pr.write_linear_example(folder)]
    ['problem.toml', 'log.csv']
    """
    return write_files(folder, example("cart"), force)


def read_content(path: Path, changes: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    """The plain content of a problem file, and its text; `changes` are keys to set, as `{"solver.iterations": 5}`."""
    text = _text(path)
    _check_keys(path, text)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}{_not_toml(str(error), text)}{_common_mistake(text)}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not TOML: {str(error)[:100] or 'it is nested too deeply'}") from None
    return changed(content, changes), text


def changed(content: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
    """The content with some keys set over it."""
    for key, value in (changes or {}).items():
        _set(content, key, value)
    return content


def _text(path: Path) -> str:
    if not path.exists():
        near = sorted(other.name for other in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        raise InputError(f"{path}: there is no such file{suggest_file(path.name, near)}")
    if not path.is_file():
        raise InputError(f"{path}: is not a file; name a problem file such as problem.toml")
    if path.stat().st_size > LARGEST_FILE:
        raise InputError(f"{path}: is larger than {LARGEST_FILE >> 20} MiB; problem files are small")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; a problem file is TOML") from None


def _check_keys(path: Path, text: str) -> None:
    """Refuse keys of very many parts, `a.a.a...`, before they are parsed."""
    for found in _TOKEN.finditer(text):
        if found["long"] is not None:
            line = text.count("\n", 0, found.start()) + 1
            raise InputError(f"{path}, line {line}: a key has more than {MOST_PARTS} parts; problem files have a few")


def _not_toml(said: str, text: str) -> str:
    """What the parser says, with the line in front; of what is never closed it tells only that the file ends."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", said, re.DOTALL)
    if found is None:
        return f": is not TOML: {said}"
    if found[2] is not None:
        return f", line {found[2]}: is not TOML: {found[1]} (column {found[3]})"
    lines = text.splitlines(keepends=True)
    for number in range(len(lines) - 1, max(-1, len(lines) - 1 - MOST_AGAIN // len(text)), -1):
        try:
            tomllib.loads("".join(lines[:number]))
        except ValueError:
            continue
        return f", line {number + 1}: is not TOML: {found[1]} (what begins there is not closed)"
    return f": is not TOML: {said}"


def _common_mistake(text: str) -> str:
    if text.lstrip()[:1] == "{":
        return "; it looks like JSON"
    return ""


def _set(content: dict[str, Any], key: str, value: Any) -> None:
    *tables, last = key.split(".")
    for name in tables:
        content = content.setdefault(name, {})
        if not isinstance(content, dict):
            return  # the check will say that a table was expected
    content[last] = value
