"""Further questions about a run, kept in its record and on its page: how cautious to be, what a limit costs, what to
measure next, and a proof of how good its policy is, to be checked by code that did not find it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import prudent_verifier

from ..advice import frontier, limit_frontier, worth_of_data
from ..errors import InputError
from ..files import locked, settle
from ..problems import AbstractCase, Case, risk_name
from ..proofs import Moment, Proof, proof_file, prove
from ..report import (
    FrontierRecord,
    SolutionRecord,
    WorthRecord,
    frontier_record,
    limit_frontier_record,
    proof_record,
    worth_record,
)
from ..risks import CVaR
from .checkpoint import Saved, checkpoint_from, episode_seed
from .folder import CHECKPOINT, FILES, PROOF, REPORT, read_record, read_run, record_files, require_run
from .reporting import add_to_run, can_report, page_file

Result = TypeVar("Result")


def added(
    command: str,
    folder: Path,
    find: Callable[[Saved, dict[str, Any], SolutionRecord], tuple[Result, dict[str, Any], dict[str, bytes]]],
    trust: bool,
    wait: bool,
) -> Result:
    """What is found of a run, once it is in its folder.

    Args:
        command: that asks for it, for messages.
        folder: of the run, locked meanwhile.
        find: from its checkpoint, the arguments of `solve` and its record; gives what is found, and the same as fields
            of the record and as other files.
        trust: import the code that the problem's `family` names.
        wait: until no other process changes the folder; refused otherwise if one does.
    """
    require_run(folder)
    with locked(folder, wait):
        settle(folder, FILES)
        read = read_run(folder, (CHECKPOINT,), apart=(PROOF,))
        saved = checkpoint_from(read.contents[CHECKPOINT], folder / CHECKPOINT, trust)
        # Before the work: what cannot be added to is refused at once.
        record, arguments = read_record(folder), saved.case.require_table(command).arguments()
        arguments["seed"] = episode_seed(arguments["seed"], saved.episode)
        found, fields, files = find(saved, arguments, record)
        record = record.model_copy(update=fields)
        contents = record_files(record) | files
        if (folder / REPORT).is_file() and can_report():
            contents[REPORT] = page_file(record)
        add_to_run(folder, contents)
    return found


# Levels of CVaR whose policies make a frontier of mean against tail.
LEVELS = (0.0, 0.5, 0.8, 0.9, 0.95)


def frontier_run(
    folder: str | Path,
    *,
    limit: str | None = None,
    points: int = 7,
    caution: bool = False,
    trust: bool = False,
    wait: bool = False,
) -> FrontierRecord:
    """What a limit of a run costs, level by level; without limits, what caution costs. It is added to the run's record.

    Args:
        folder: of the run.
        limit: the name of the limit that is varied; the first one when left out.
        points: how many levels of it.
        caution: whether the frontier of mean against tail is asked for, whatever limits there are.
        trust: import the code that the problem's `family` names.
        wait: until no other process changes the folder; refused otherwise if one does.

    >>> import prudent as pr
    >>> pr.frontier_run("no-such-folder")
    Traceback (most recent call last):
    prudent.errors.InputError: no-such-folder: there is no such folder; name the --out folder of prudent solve
    """

    def found(saved: Saved, arguments: dict[str, Any], _: SolutionRecord) -> FrontierRecord:
        limits = arguments.pop("subject_to", [])
        if caution or not limits:
            tail = arguments["risk"]
            parts = {name: arguments[name] for name in ("loss", "solver", "seed")}
            risks = [CVaR(level) for level in LEVELS]
            curve = frontier(arguments["model"], arguments["belief"], risks, tail=tail, radius=None, **parts)
            return frontier_record(curve, risk_name(saved.case.facts.file.risk))
        names = [each.called(place) for place, each in enumerate(limits)]
        if limit is not None and limit not in names:
            raise InputError(f"{folder}: has no limit {limit!r}; its limits are {', '.join(names)}")
        which = 0 if limit is None else names.index(limit)
        model, belief = arguments.pop("model"), arguments.pop("belief")
        curve = limit_frontier(model, belief, limits, which=which, points=points, **arguments)
        return limit_frontier_record(curve, which)

    return added(
        "prudent frontier", Path(folder), lambda *read: ((curve := found(*read)), {"frontier": curve}, {}), trust, wait
    )


def worth_run(
    folder: str | Path,
    *,
    observations: int = 10,
    pairs: int = 6,
    replications: int = 32,
    trust: bool = False,
    wait: bool = False,
) -> WorthRecord:
    """What more observations of the pairs that a run's policy meets most are worth; added to the run's record.

    Limits are left out of it: it is the fall of the least risk without them.

    Args:
        folder: of the run.
        observations: how many more of each pair.
        pairs: how many pairs are looked at, those with the most discounted time first.
        replications: simulated logs of each.
        trust: import the code that the problem's `family` names.
        wait: until no other process changes the folder; refused otherwise if one does.

    >>> import prudent as pr
    >>> pr.worth_run("no-such-folder")
    Traceback (most recent call last):
    prudent.errors.InputError: no-such-folder: there is no such folder; name the --out folder of prudent solve
    """

    def found(saved: Saved, arguments: dict[str, Any], record: SolutionRecord) -> WorthRecord:
        case = saved.case.require_table("prudent worth")
        if case.family is not None and not hasattr(arguments["belief"], "update"):
            raise InputError(f"{folder}: its belief cannot be updated, so nothing can be said of more data")
        places = _met(record, case, pairs)
        parts = {name: arguments[name] for name in ("risk", "loss", "seed")}
        how = {"observations": observations, "places": places, "replications": replications}
        worth = worth_of_data(arguments["model"], arguments["belief"], **how, **parts)
        names = [", ".join(_place(case, row.place)) for row in worth.rows]
        return worth_record(worth, names)

    return added(
        "prudent worth", Path(folder), lambda *read: ((worth := found(*read)), {"worth": worth}, {}), trust, wait
    )


def _place(case: Case, place: tuple[int, ...]) -> tuple[str, ...]:
    if len(place) == 2:
        return case.facts.states[place[0]], case.facts.actions[place[1]]
    return (f"theta{list(place)}",)


def _met(record: SolutionRecord, case: Case, most: int) -> list[tuple[int, ...]] | None:
    """The pairs with the most discounted time that lead to more than one state; None where theta is no table."""
    if record.occupancy is None or case.family is not None:
        return None
    open_ = case.support.allowed().sum(axis=2) > 1
    time = np.where(open_, record.occupancy, 0.0)
    order = np.argsort(-time.ravel(), kind="stable")[:most]
    chosen = [tuple(int(i) for i in np.unravel_index(k, time.shape)) for k in order if time.ravel()[k] > 0]
    if not chosen:
        raise InputError("the policy meets no pair that could lead to more than one state; there is nothing to observe")
    return chosen


@dataclass(frozen=True)
class ProvedRun:
    """A proof, and the file that holds it.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     proved = pr.prove_run(run.folder, samples=4, gap=0.5, seconds=5.0)
    ...     pr.verify_run(run.folder).draws
    4

    Attributes:
        proof: of the run's question.
        path: the file for the verifier; None where the loss or risk is not one that it knows.
    """

    proof: Proof
    path: Path | None


def prove_run(
    folder: str | Path,
    *,
    gap: float = 1e-3,
    seconds: float = 60.0,
    deterministic: bool = False,
    samples: int = 64,
    replications: int = 1,
    trust: bool = False,
    wait: bool = False,
    progress: Callable[[Moment], None] | None = None,
) -> ProvedRun:
    """Search all stationary policies for one that beats a run's; arguments are those of `prove`.

    The file `proof.safetensors` in the run's folder is for `verify_run`. The folder is locked meanwhile; with `wait`
    the search begins once no other process changes it.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     proof = pr.prove_run(run.folder, samples=4, gap=0.5, seconds=5.0).proof
    >>> proof.lower_bound <= proof.risk
    True
    """
    how = {"gap": gap, "seconds": seconds, "deterministic": deterministic, "samples": samples}

    folder = Path(folder)

    def found(saved: Saved, arguments: dict[str, Any], _: SolutionRecord) -> Any:
        more = {"replications": replications, "progress": progress}
        proof, content = proved(saved.case, arguments, saved.policy, **how, **more)
        files = {} if content is None else {PROOF: content}
        return ProvedRun(proof, folder / PROOF if files else None), {"proof": proof_record(proof)}, files

    return added("prudent prove", folder, found, trust, wait)


def proved(case: AbstractCase, arguments: dict[str, Any], start: Any, **how: Any) -> tuple[Proof, bytes | None]:
    """A proof of a problem, and its file; None where the loss or risk is not one that the verifier knows.

    The proof has the bound that the file claims, so that whoever prints either prints the same.

    Args:
        case: the problem.
        arguments: of `solve`.
        start: a policy to begin at.
        how: other arguments of `prove`.
    """
    if case.file.limit:
        raise InputError(
            "a proof knows no limits: it is about all policies; the run's own bound is about those in them"
        )
    asked = {name: arguments[name] for name in ("model", "belief", "risk", "loss", "seed")}
    proof = prove(**asked, start=start, **how)
    try:
        content = proof_file(proof, {"problem": case.digest()})
    except InputError:
        return proof, None
    bound = prudent_verifier.read(content)[1]["lower_bound"]
    optimum = (bound, proof.risk) if proof.exact else proof.optimum
    return replace(proof, lower_bound=bound, known_bound=min(proof.known_bound, bound), optimum=optimum), content


def verify_run(folder: str | Path, *, trust: bool = False) -> prudent_verifier.Verdict:
    """Check the proof in a run's folder by code that shares nothing with what found it; refused if it does not hold.

    >>> import prudent as pr
    >>> pr.verify_run("no-such-folder")
    Traceback (most recent call last):
    prudent.errors.InputError: no-such-folder: there is no such folder; name the --out folder of prudent solve
    """
    folder = Path(folder)
    path = folder / PROOF
    require_run(folder)
    if not path.is_file():
        raise InputError(f"{path}: there is no proof; make one with prudent prove {folder}")
    read = read_run(folder, (CHECKPOINT, PROOF))
    try:
        verdict = prudent_verifier.verify(read.contents[PROOF])
    except prudent_verifier.Refused as refusal:
        raise InputError(f"{path}: the proof does not hold: {refusal}") from None
    digests = prudent_verifier.read(read.contents[PROOF])[1].get("digests")
    now = checkpoint_from(read.contents[CHECKPOINT], folder / CHECKPOINT, trust).case.digest()
    if not isinstance(digests, dict) or digests.get("problem") != now:
        raise InputError(f"{path}: the proof holds, but for another problem than the run's; prove it again")
    return verdict
