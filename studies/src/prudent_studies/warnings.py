"""Is the warning earned? Answers from logs of known environments, which stated risks were kept, which were warned of.

Run `python -m prudent_studies.warnings`: it prints the table of the manual's page on the footing of an answer.
Answers are kept in a file as they come, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import prudent as pr

SIZES = (100, 500, 3000)

# Logs with seeds below this were looked at when the rule was chosen; the others had no say.
CHOSEN_BY = 2

# One sample and few starts: a study of many logs; the word is about any policy, the best or not.
SOLVER = pr.SampleAverage(samples=256, largest=256, starts=3, iterations=60, evaluation=1000)


@dataclass(frozen=True)
class Answer:
    """One answer to one log.

    Attributes:
        environment, steps, seed, belief: which log, and what was believed of it.
        stated: the risk, CVaR 0.9.
        true: the loss of the policy in the environment.
        exceeded, tail_time: the numbers behind the word.
        word: sound, thin or unsupported.
    """

    environment: str
    steps: int
    seed: int
    belief: str
    stated: float
    true: float
    exceeded: float
    tail_time: float
    word: str

    @property
    def kept(self) -> bool:
        """Whether the true loss is at most the stated risk, up to rounding."""
        return self.true <= self.stated + 1e-9 * abs(self.stated)

    @property
    def warned(self) -> bool:
        return self.word != "sound"


@dataclass(frozen=True)
class Score:
    """What the word was worth on some answers, all as shares.

    Attributes:
        answers: how many.
        kept: of all answers.
        unwarned: broken and called sound, of all answers.
        alarms: warned of, of the answers that were kept, by the size of the log.
    """

    answers: int
    kept: float
    unwarned: float
    alarms: dict[int, float]


def score(answers: Sequence[Answer]) -> Score:
    """How often the stated risk was kept, broken without a warning, and warned of for nothing.

    >>> kept = Answer("a", 100, 0, "pooled", 1.0, true=0.5, exceeded=0.3, tail_time=0.0, word="thin")
    >>> broken = Answer("a", 100, 1, "pooled", 1.0, true=2.0, exceeded=0.1, tail_time=0.0, word="sound")
    >>> score([kept, broken])
    Score(answers=2, kept=0.5, unwarned=0.5, alarms={100: 1.0})
    """
    sizes = sorted({each.steps for each in answers if each.kept})
    return Score(
        answers=len(answers),
        kept=_share(each.kept for each in answers),
        unwarned=_share(not each.kept and not each.warned for each in answers),
        alarms={n: _share(each.warned for each in answers if each.kept and each.steps == n) for n in sizes},
    )


def _share(flags: Iterable[bool]) -> float:
    several = list(flags)
    return sum(several) / len(several) if several else float("nan")


def answer(environment: str, steps: int, seed: int, belief: str) -> Answer:
    """Walk at random, learn, solve by CVaR 0.9, and hold the stated risk against the truth.

    Args:
        environment: a name in `pr.envs.KNOWN`.
        steps: of the log.
        seed: of the log and of the solve.
        belief: `pooled` with any state possible, `listed` Dirichlet rows on the true successors, or `observed` ones on
            those that the log has shown.
    """
    known = pr.envs.known_environment(environment)
    log = known.walk(steps, seed)
    support = _support(known, log, belief)
    cost = np.asarray(known.cost)
    if cost.ndim == 3:
        s, a = np.ogrid[: support.states, : support.actions]
        cost = np.where(support.allowed(), cost[s[..., None], a[..., None], support.index()], 0.0)
    model = pr.TabularFamily(support, cost, known.start, known.discount)
    prior = pr.Pooled(support) if belief == "pooled" else pr.Dirichlet.symmetric(support)
    solution = pr.solve(model, prior.update(log), risk=pr.CVaR(0.9), solver=SOLVER, seed=seed, progress=False)
    true = _loss(known, np.asarray(solution.policy.probabilities))
    footing = solution.footing
    numbers = solution.risk, true, footing.exceeded, footing.tail_time
    return Answer(environment, steps, seed, belief, *numbers, footing.word.name.lower())


def _support(known: pr.envs.KnownEnvironment, log: pr.Transitions, belief: str) -> pr.Support:
    table, ends = np.asarray(known.table), set(known.terminal)
    seen = np.zeros(table.shape, dtype=bool)
    seen[np.asarray(log.state), np.asarray(log.action), np.asarray(log.next_state)] = True
    rows = {"listed": table > 0, "observed": np.where(seen.any(axis=2, keepdims=True), seen, True)}
    allowed = rows.get(belief, np.ones(table.shape, dtype=bool))
    if allowed.all() and not ends:
        return pr.Support.dense(*known.shape)
    lists = [[[s] if s in ends else np.flatnonzero(row).tolist() for row in pairs] for s, pairs in enumerate(allowed)]
    return pr.Support.lists(lists, observed=belief == "observed")


def _loss(known: pr.envs.KnownEnvironment, policy: np.ndarray) -> float:
    mdp = known.mdp()
    return float((pr.occupancy(mdp, policy) * np.asarray(mdp.cost)).sum())


def answers(path: Path, environments: Sequence[str], logs: Sequence[int], beliefs: Sequence[str]) -> list[Answer]:
    """All answers, those that the file holds already read from it."""
    found = [Answer(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    have = {(each.environment, each.steps, each.seed, each.belief): each for each in found}
    wanted = [(name, n, seed, belief) for seed in logs for belief in beliefs for name in environments for n in SIZES]
    for name in wanted:
        if name not in have:
            have[name] = answer(*name)
            with path.open("a") as file:
                file.write(json.dumps(asdict(have[name])) + "\n")
    return [have[name] for name in wanted]


def table(made: Sequence[Answer]) -> str:
    """The scores as a table: of each belief all logs, those the rule was chosen by, and those that had no say."""
    lines = ["| belief | logs | answers | kept | broken, called sound | kept, warned of: 100 / 500 / 3,000 steps |"]
    lines.append("|---|---|---|---|---|---|")
    for belief in dict.fromkeys(each.belief for each in made):
        ours = [each for each in made if each.belief == belief]
        parts = {
            "all": ours,
            "rule chosen by": [each for each in ours if each.seed < CHOSEN_BY],
            "held out": [each for each in ours if each.seed >= CHOSEN_BY],
        }
        for name, part in parts.items():
            if not part:
                continue
            found = score(part)
            alarms = " / ".join(f"{found.alarms[n]:.0%}" if n in found.alarms else "–" for n in SIZES)
            lines.append(
                f"| {belief} | {name} | {found.answers} | {found.kept:.0%} | {found.unwarned:.1%} | {alarms} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the answers that are missing, and print the table."""
    parser = argparse.ArgumentParser(description="Hold the warning against environments that are known.")
    parser.add_argument("--out", type=Path, default=Path("warnings.jsonl"), help="answers, a line each")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(4)), help="of the logs, one of each size")
    parser.add_argument("--beliefs", nargs="+", default=["pooled"], choices=["pooled", "listed", "observed"])
    usual = [name for name in pr.envs.KNOWN if name != "taxi"]
    parser.add_argument("--environments", nargs="+", default=usual, choices=list(pr.envs.KNOWN))
    given: Any = parser.parse_args(arguments)
    print(table(answers(given.out, given.environments, given.seeds, given.beliefs)))


if __name__ == "__main__":
    main()
