"""A case as a folder: the problem file with its tables; solved, and its plans held against what they did not see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from ..errors import InputError
from ..files import uninterrupted, write_files
from ..interrupts import has_begun
from ..runs import Run, csv_text, solve_problem
from ..solvers import Shown
from . import bus, bus_held_out, hiv, nile
from .held_out import HeldOutOutcome, bundled, csv_rows


def _problem(name: str, module: Any, **lists: Any) -> str:
    """The problem file of a case: its template with the constants of its module and with these lists."""
    texts = {key: given if isinstance(given, str) else json.dumps(given) for key, given in lists.items()}
    return Template(bundled(f"{name}.toml")).substitute(vars(module) | texts)


def _bus() -> dict[str, str]:
    header = ("unit", "time", "action", "state", "next_state")
    names = bus.state_names()
    rows = [(unit, time, act, names[state], names[then]) for unit, time, act, state, then in bus.log_of(bus.buses())]
    return {"problem.toml": _problem("bus", bus, states=names), "log.csv": csv_text(header, rows)}


def _nile() -> dict[str, str]:
    releases = [f"release {release}" for release in nile.RELEASES]
    rows = [(time, s, f"release {release}", then) for time, s, release, then in nile.log_of(*nile.inflows())]
    pairs = [(s, a) for s in range(nile.STATES) for a in range(len(releases))]
    cost = nile.costs()
    moves = [(s, releases[a], w, nile.kept(s, a) + w) for s, a in pairs for w in range(nile.LEAST, nile.MOST + 1)]
    return {
        "problem.toml": _problem("nile", nile, actions=releases),
        "log.csv": csv_text(("time", "state", "action", "next_state"), rows),
        "costs.csv": csv_text(("state", "action", "cost"), [(s, releases[a], f"{cost[s, a]:g}") for s, a in pairs]),
        "outcomes.csv": csv_text(("state", "action", "outcome", "next_state"), moves),
    }


def _hiv() -> dict[str, str]:
    states, everyone = hiv.state_names(), hiv.patients()
    shares = [round(float((everyone.before == band).mean()), 6) for band in range(len(hiv.BANDS) - 1)]
    shares.append(1.0 - sum(shares))
    start = "\n".join(f'"{state}" = {share:.6f}' for state, share in zip(states, shares, strict=False))
    log = [(p, time, states[s], hiv.SHORT[a], states[then]) for p, time, s, a, then in hiv.log_of(everyone)]
    names = [*hiv.BANDS, "event"]
    moves = [
        (
            states[s],
            hiv.SHORT[a],
            names[outcome],
            states[then],
            # After 20 weeks the state tells the therapy, and with it the law.
            states[s] if then >= hiv.LAST else f"{states[s]}, {hiv.SHORT[a]}",
        )
        for s, a, outcome, then, _ in hiv.moves()
    ]
    costs = [
        (states[s], hiv.SHORT[a], states[then], hiv.COSTS[outcome])
        for s, a, outcome, then, _ in hiv.moves()
        if then >= hiv.LAST
    ]
    return {
        "problem.toml": _problem(
            "hiv", hiv, states=states, actions=hiv.SHORT, terminal=states[hiv.LAST :], start=start
        ),
        "log.csv": csv_text(("unit", "time", "state", "action", "next_state"), log),
        "costs.csv": csv_text(("state", "action", "next_state", "cost"), costs),
        "outcomes.csv": csv_text(("state", "action", "outcome", "next_state", "law"), moves),
    }


TABLES: dict[str, Callable[[], dict[str, str]]] = {"bus": _bus, "nile": _nile, "hiv": _hiv}
STUDIES: dict[str, Callable[..., list[HeldOutOutcome]]] = {
    "bus": bus_held_out.outcomes,
    "nile": nile.outcomes,
    "hiv": hiv.outcomes,
}
CASES = tuple(TABLES)


def write_case(name: str, folder: str | Path, force: bool = False) -> tuple[Path, ...]:
    """Write a real case as a problem file with its tables, and where the data are from.

    Args:
        name: `bus`, `nile` or `hiv`.
        folder: made if there is none.
        force: replace files of these names; refused otherwise.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in pr.write_case("nile", folder)]
    ['problem.toml', 'log.csv', 'costs.csv', 'outcomes.csv', 'SOURCE.md']
    """
    _require_case(name)
    parts = bundled("SOURCES.md").split("\n## ")
    files = TABLES[name]() | {"SOURCE.md": "# " + next(part for part in parts if part.startswith(name))}
    return write_files(folder, files, force)


def _require_case(name: str) -> None:
    if name not in CASES:
        raise InputError(f"there is no case {name!r}; there are {', '.join(CASES)}")


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
    _require_case(name)
    if splits < 1:
        raise InputError(f"splits must be at least 1, got {splits}")
    with uninterrupted:
        written = write_case(name, out, force)
        has_begun()
    # The code that the bus's problem file names is this package's own.
    run = solve_problem(written[0], Path(out) / "run", force=force, trust=True, progress=progress)
    found = STUDIES[name](splits=splits, seed=seed)
    table = write_files(out, {"held-out.csv": csv_text(*csv_rows(found))}, force=True)
    return CaseRun(run, found, (*written, *run.files, *table))
