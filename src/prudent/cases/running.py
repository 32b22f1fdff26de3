"""A case from its data to its page, and to the table of what became of its plans on what they did not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import write_files
from ..runs import Run, solve_problem
from ..solvers import Shown
from . import bus_held_out, hiv, nile
from .held_out import HeldOutOutcome, csv_rows
from .writing import CASES, _text, write_case

STUDIES: dict[str, Callable[..., list[HeldOutOutcome]]] = {
    "bus": bus_held_out.outcomes,
    "nile": nile.outcomes,
    "hiv": hiv.outcomes,
}


@dataclass(frozen=True)
class CaseRun:
    """A case that was run into a folder.

    Attributes:
        run: the whole of the data solved, with its page.
        outcomes: plans made on parts of the data, held against the rest.
        files: everything written.
    """

    run: Run
    outcomes: list[HeldOutOutcome]
    files: tuple[Path, ...]


def run_case(
    name: str, out: str | Path, *, splits: int = 3, seed: int = 0, force: bool = False, progress: Shown = None
) -> CaseRun:
    """Write a case, solve it into the folder `run` beside it, and hold plans from parts of its data against the rest.

    Args:
        name: `bus`, `nile` or `hiv`.
        out: the folder.
        splits: how often each part is drawn.
        seed: of the splits.
        force: replace what is there.
        progress: as in `solve`.

    >>> import prudent as pr
    >>> try:
    ...     pr.run_case("tram", "tram")
    ... except pr.InputError as error:
    ...     print(error)
    there is no case 'tram'; there are bus, nile, hiv
    """
    if name not in CASES:
        raise InputError(f"there is no case {name!r}; there are {', '.join(CASES)}")
    if splits < 1:
        raise InputError(f"splits must be at least 1, got {splits}")
    written = write_case(name, out, force)
    # The code that the bus's problem file names is this package's own.
    run = solve_problem(written[0], Path(out) / "run", force=force, trust=True, progress=progress)
    more: dict[str, Any] = {"splits": splits, "seed": seed}
    found = STUDIES[name](**more)
    table = write_files(out, {"held-out.csv": _text(*csv_rows(found))}, force=True)
    return CaseRun(run, found, (*written, *run.files, *table))
