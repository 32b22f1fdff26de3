"""The example that `prudent init` writes: a machine that wears."""

from __future__ import annotations

from pathlib import Path

from ..files import write_files

PROBLEM = """\
# When to service and when to replace a machine. Solve it with: prudent solve problem.toml
# Every key is explained in the manual, on the page about the problem file.

title = "Machine maintenance"
states = ["new", "used", "worn", "broken"]
actions = ["run", "service", "replace"]
discount = 0.95          # what a cost of next week weighs today
start = "new"            # or a distribution: { new = 0.5, used = 0.5 }
seed = 0                 # the same seed gives the same bits

[data]
transitions = "log.csv"  # state,action,next_state and, if you like, count; also .tsv, .parquet, .jsonl
costs = "costs.csv"      # state,action,cost; lower is better

[posterior]              # what is believed of the unknown probabilities
kind = "pooled"          # any state may follow; rows learn from one another which do. "dirichlet": each by itself
support = "all"          # better, if you know where a pair may lead: "listed", with successors = "successors.csv"

[risk]                   # what is minimised over the posterior
kind = "cvar"            # the mean of the worst tenth; "expectation" for the plain mean
level = 0.9

[solver]                 # what is left out is the solver's default
kind = "sample-average"  # descent on a growing posterior sample; or "brpg", a gradient step on fresh draws each time
iterations = 300         # at most
samples = 128            # posterior draws of the first sample
tolerance = 1e-4         # converged when so small a share of the loss is left to gain
evaluation = 1000        # fresh draws on which the risk is reported
"""

LOG = """\
state,action,next_state,count
new,run,new,11
new,run,used,5
new,service,new,2
new,replace,new,1
used,run,used,9
used,run,worn,4
used,service,new,3
used,service,used,2
used,replace,new,1
worn,run,worn,4
worn,run,broken,1
worn,service,used,2
worn,service,worn,1
worn,replace,new,2
broken,run,broken,1
broken,service,worn,1
broken,service,broken,1
broken,replace,new,2
"""

COSTS = """\
state,action,cost
new,run,0
new,service,2
new,replace,9
used,run,0.5
used,service,3
used,replace,9
worn,run,1.5
worn,service,4
worn,replace,9
broken,run,12
broken,service,11
broken,replace,15
"""


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
    return write_files(folder, {"problem.toml": PROBLEM, "log.csv": LOG, "costs.csv": COSTS}, force)
