"""What a reader walks through: functions, files and records that warm calls meet, lines of code, lines that are loaded.

Functions and files are counted with `sys.setprofile` in one process; comprehensions belong to the function around them.
Lines of code are lines that hold a token other than a comment or a docstring.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import os
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import prudent as pr
from prudent.cli import app

from .measuring import report

LIBRARY = Path(pr.__file__).parent
ROOT = LIBRARY.parents[1]
STUDIES = ROOT / "studies" / "src" / "prudent_studies"

# Frames that are no functions to a reader.
UNNAMED = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


class Walk(NamedTuple):
    """The code of the library that one call met.

    Attributes:
        functions: places where the functions begin, `(file, line)`, with their names.
        records: names of record types that were constructed.
    """

    functions: set[tuple[str, int, str]]
    records: set[str]

    @property
    def files(self) -> set[str]:
        """Return the files that the functions are in."""
        return {file for file, _, _ in self.functions}


def trace_call(call: Callable[[], Any]) -> Walk:
    """Return what a call meets, in the threads that it begins, too."""
    functions: set[tuple[str, int, str]] = set()
    records: set[str] = set()
    here = str(LIBRARY) + os.sep

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        # The constructor of a named tuple is a lambda of the standard library.
        if code.co_name in ("__init__", "__new__") or "_cls" in frame.f_locals:
            owner = frame.f_locals.get("self", frame.f_locals.get("_cls"))
            kind = owner if isinstance(owner, type) else type(owner)
            is_record = dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
            if kind.__module__.startswith("prudent.") and is_record:
                records.add(f"{kind.__module__}.{kind.__qualname__}")
        if code.co_filename.startswith(here) and code.co_name not in UNNAMED:
            functions.add((code.co_filename[len(here) :], code.co_firstlineno, code.co_name))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return Walk(functions, records)


def code_lines(path: Path) -> int:
    """Return the number of lines of a file that hold code."""
    source = path.read_text(encoding="utf-8")
    held = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            text = node.body[0]
            held.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(held)


def lines_by_package(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the number of files and of code lines of each package in a folder; of modules beside them together."""
    files, lines = Counter[str](), Counter[str]()
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).parts
        name = inside[0] + "/" if len(inside) > 1 else "(modules)"
        files[name] += 1
        lines[name] += code_lines(path)
    return {name: (files[name], lines[name]) for name in sorted(files)}


def loaded_lines(statement: str) -> tuple[int, int]:
    """Return how many of our modules a statement loads in a new process, and their code lines."""
    listing = "import sys; print('\\n'.join(m.__file__ for n, m in list(sys.modules.items()) if n.split('.')[0] == "
    listing += "'prudent' and getattr(m, '__file__', None)))"
    asked = [sys.executable, "-c", f"{statement}; {listing}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return len(found), sum(code_lines(Path(name)) for name in found)


def solve_example(folder: str) -> None:
    """Run `prudent solve` on the example of `prudent init`, in this process."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
        app(["solve", str(Path(folder) / "problem.toml"), "--out", str(Path(folder) / "run"), "--force"])


def run(rounds: int) -> None:
    """Print the walks of two calls, and sizes."""
    del rounds
    lake = pr.envs.frozen_lake()
    belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.02), seed=0))

    def solve() -> Any:
        return pr.solve(lake, belief, risk=pr.CVaR(0.9), progress=False)

    solve()
    walks = {"pr.solve, the lake": trace_call(solve)}
    with tempfile.TemporaryDirectory() as folder:
        pr.write_example(folder)
        solve_example(folder)
        walks["prudent solve, init's example"] = trace_call(lambda: solve_example(folder))
    rows = [(name, len(walk.functions), len(walk.files), len(walk.records)) for name, walk in walks.items()]
    shown("what warm calls meet", ("warm call", "functions", "files", "record types"), rows)
    print(
        "records of pr.solve:", ", ".join(sorted(name.split(".")[-1] for name in walks["pr.solve, the lake"].records))
    )
    sizes = [("src/prudent", LIBRARY), ("studies", STUDIES)]
    rows, total = [], (0, 0)
    for title, folder in sizes:
        packages = lines_by_package(folder)
        whole = tuple(map(sum, zip(*packages.values(), strict=True)))
        total = tuple(map(sum, zip(total, whole, strict=True)))
        rows += [(f"{title}/{name}", *counts) for name, counts in packages.items()]
        rows.append((f"{title} together", *whole))
    rows.append(("both together", *total))
    shown("sizes", ("package", "files", "code lines"), rows)
    statements = ("import prudent", "import prudent.solvers")
    shown(
        "what is loaded", ("statement", "modules", "code lines"), [(each, *loaded_lines(each)) for each in statements]
    )


def shown(title: str, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print a table of names and counts."""
    report(title, header, [(name, *(f"{count:,}" for count in counts)) for name, *counts in rows])
