"""A case as a folder: the problem file with its tables, and where the data are from."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import write_files
from . import bus, hiv, nile

BUS = f"""\
# When to replace the engine of a bus. The model is in prudent itself, so: prudent solve problem.toml --trust
title = "Engines of the buses of Madison"
states = {bus.state_names()}  # on the engine
actions = ["keep", "replace"]
family = "prudent.cases:bus_family"

[options]                 # what is assumed of costs, in Rust's units: change them
replacement = {bus.REPLACEMENT}      # of an engine
growth = {bus.GROWTH}           # of the monthly cost, in thousandths a step of mileage
growth_error = {bus.GROWTH_ERROR}      # its standard error: the belief is log-normal
discount = {bus.DISCOUNT}          # a month

[data]
transitions = "log.csv"   # unit, time, state, action, next_state: what was done, and what came of it

[risk]
kind = "cvar"
level = 0.9

[solver]                  # {bus.STATES} states are solved by sweeps, so fewer draws than usual
samples = 64
largest = 64
starts = 2
evaluation = 400
"""

NILE = f"""\
# How much to let through a reservoir on the Nile each year; water in steps of ten cubic kilometres.
title = "A reservoir on the Nile"
states = {nile.STATES}               # water at hand once the flood has come in
actions = {[f"release {release}" for release in nile.RELEASES]}
discount = {nile.DISCOUNT}
start = {nile.START}

[data]
transitions = "log.csv"   # the inflows of a hundred years, with {nile.DEMAND} let through in each
costs = "costs.csv"       # squares of what is missing below {nile.DEMAND}, twice those above {nile.SAFE}

[posterior]
kind = "outcomes"         # one law of the inflow for all years, whatever is at hand
outcomes = "outcomes.csv"
prior = {nile.PRIOR}

[risk]
kind = "cvar"
level = 0.9
"""

HIV = f"""\
# Which of four therapies for whom, by the CD4 count before it.
title = "Treatment of HIV: ACTG 175"
states = {hiv.state_names()}
actions = {list(hiv.SHORT)}
terminal = {hiv.state_names()[hiv.LAST :]}
discount = {hiv.DISCOUNT}

[start]                   # shares of the patients
%s

[data]
transitions = "log.csv"
costs = "costs.csv"       # of the outcome after 96 weeks: ours, change them
default_cost = 0.0

[posterior]
kind = "outcomes"         # after 20 weeks the law is that of the therapy begun: nobody changed it
outcomes = "outcomes.csv"
prior = {hiv.PRIOR}

[risk]
kind = "cvar"
level = 0.9
"""


def _text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _bus() -> dict[str, str]:
    header = ("unit", "time", "action", "state", "next_state")
    names = bus.state_names()
    rows = [(unit, time, act, names[state], names[then]) for unit, time, act, state, then in bus.log_of(bus.buses())]
    return {"problem.toml": BUS.replace("'", '"'), "log.csv": _text(header, rows)}


def _nile() -> dict[str, str]:
    releases = [f"release {release}" for release in nile.RELEASES]
    rows = [(time, s, f"release {release}", then) for time, s, release, then in nile.log_of(*nile.inflows())]
    pairs = [(s, a) for s in range(nile.STATES) for a in range(len(releases))]
    cost = nile.costs()
    moves = [(s, releases[a], w, nile.kept(s, a) + w) for s, a in pairs for w in range(nile.LEAST, nile.MOST + 1)]
    return {
        "problem.toml": NILE.replace("'", '"'),
        "log.csv": _text(("time", "state", "action", "next_state"), rows),
        "costs.csv": _text(("state", "action", "cost"), [(s, releases[a], f"{cost[s, a]:g}") for s, a in pairs]),
        "outcomes.csv": _text(("state", "action", "outcome", "next_state"), moves),
    }


def _hiv() -> dict[str, str]:
    states, everyone = hiv.state_names(), hiv.patients()
    start = "\n".join(
        f'"{states[band]}" = {(everyone.before == band).mean():.6f}' for band in range(len(hiv.BANDS) - 1)
    )
    last = 1.0 - sum(round(float((everyone.before == band).mean()), 6) for band in range(len(hiv.BANDS) - 1))
    start += f'\n"{states[len(hiv.BANDS) - 1]}" = {last:.6f}'
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
        "problem.toml": (HIV % start).replace("'", '"'),
        "log.csv": _text(("unit", "time", "state", "action", "next_state"), log),
        "costs.csv": _text(("state", "action", "next_state", "cost"), costs),
        "outcomes.csv": _text(("state", "action", "outcome", "next_state", "law"), moves),
    }


CASES: dict[str, Callable[[], dict[str, str]]] = {"bus": _bus, "nile": _nile, "hiv": _hiv}


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
    if name not in CASES:
        raise InputError(f"there is no case {name!r}; there are {', '.join(CASES)}")
    source: Any = resources.files("prudent.cases") / "data" / "SOURCES.md"
    parts = source.read_text(encoding="utf-8").split("\n## ")
    files = CASES[name]() | {"SOURCE.md": "# " + next(part for part in parts if part.startswith(name))}
    return write_files(folder, files, force)
