"""`make bench`: speed and memory as ratios, every contender measured side by side in the same rounds.

Numbers depend on the machine; the ratios much less. `--rounds 3` is quicker, `--only gradient` runs one part.
"""

from __future__ import annotations

import argparse

from . import (
    beliefs,
    cell,
    compilation,
    gradient,
    large,
    latency,
    logs,
    middling,
    optimisers,
    parts,
    planning,
    processes,
    q_learning,
    uneven,
    walk,
)

PARTS = {
    "latency": latency.run,
    "middling": middling.run,
    "large": large.run,
    "uneven": uneven.run,
    "cell": cell.run,
    "gradient": gradient.run,
    "compilation": compilation.run,
    "parts": parts.run,
    "planning": planning.run,
    "processes": processes.run,
    "optimisers": optimisers.run,
    "q_learning": q_learning.run,
    "logs": logs.run,
    "beliefs": beliefs.run,
    "walk": walk.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds a contender; medians are reported")
    parser.add_argument("--only", choices=PARTS, action="append", help="run this part (may be repeated)")
    arguments = parser.parse_args()
    for name in arguments.only or PARTS:
        PARTS[name](arguments.rounds)


main()
