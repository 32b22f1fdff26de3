"""Memory where few rows have many successors: 40 states and 10 actions, of whose 400 pairs four were never seen."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

import prudent as pr

from .measuring import peak_memory, report, verdict

STATES, ACTIONS, FEW, UNSEEN, DRAWS = 40, 10, 3, 4, 5_000


def run(rounds: int) -> None:
    del rounds
    found = {}
    for name in ("nothing", "even", "uneven"):
        command = [sys.executable, "-m", "benchmarks.uneven", name]
        found[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    triples = (STATES * ACTIONS - UNSEEN) * FEW + UNSEEN * STATES
    share = (found["uneven"] - found["nothing"]) / (found["even"] - found["nothing"])
    more = triples / (STATES * ACTIONS * FEW)
    rows = [(name, f"{peak:.2f}", "") for name, peak in found.items()]
    rows.append(("uneven by even, imports taken off", f"{share:.2f}", verdict(share, 1.5 * more)))
    title = (
        f"Peak memory, GiB: {DRAWS} draws judged; the uneven belief has {more:.2f} times the triples of the even one"
    )
    report(title, ("four pairs may lead", "GiB", "aim"), rows)


def judged(name: str) -> float:
    """The peak of a process that judges a policy on draws of one of the beliefs."""
    random = np.random.default_rng(0)
    lists = random.integers(0, STATES, (STATES, ACTIONS, FEW)).tolist()
    lists = [[sorted(set(successors)) for successors in row] for row in lists]
    if name == "uneven":
        for state in range(UNSEEN):
            lists[state][0] = list(range(STATES))
    support = pr.Support.lists(lists, states=STATES)
    family = pr.TabularFamily(support, random.uniform(size=(STATES, ACTIONS)), start=0, discount=0.9)
    belief = pr.Dirichlet.symmetric(support, 1.0)
    policy = np.full((STATES, ACTIONS), 1.0 / ACTIONS)
    pr.evaluate(policy, family, belief, samples=2 if name == "nothing" else DRAWS)
    return peak_memory()


if __name__ == "__main__":
    print(json.dumps(judged(sys.argv[1])))
