"""Prove how good a run's policy is, and have the proof checked by code that did not find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prudent_verifier

from ..errors import InputError
from ..problems import Case
from ..proofs import Moment, Proof, proof_file, prove
from ..report import SolutionRecord, proof_record
from .adding import added
from .checkpoint import Saved, checkpoint_from
from .folder import CHECKPOINT, PROOF, read_run, require_run


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

    def found(saved: Saved, arguments: dict[str, Any], _: SolutionRecord) -> tuple[Proof, bytes | None]:
        return proved(saved.case, arguments, saved.policy, **how, replications=replications, progress=progress)

    def kept(found: tuple[Proof, bytes | None]) -> tuple[dict[str, Any], dict[str, bytes]]:
        proof, content = found
        return {"proof": proof_record(proof)}, {} if content is None else {PROOF: content}

    folder = Path(folder)
    proof, content = added(folder, found, kept, trust, wait)
    return ProvedRun(proof, None if content is None else folder / PROOF)


def proved(case: Case, arguments: dict[str, Any], start: Any, **how: Any) -> tuple[Proof, bytes | None]:
    """A proof of a problem, and its file; None where the loss or risk is not one that the verifier knows.

    Args:
        case: the problem.
        arguments: of `solve`.
        start: a policy to begin at.
        how: other arguments of `prove`.
    """
    if case.facts.file.limit:
        raise InputError(
            "a proof knows no limits: it is about all policies; the run's own bound is about those in them"
        )
    asked = {name: arguments[name] for name in ("model", "belief", "risk", "loss", "seed")}
    proof = prove(**asked, start=start, **how)
    try:
        return proof, proof_file(proof, {"problem": case.digest()})
    except InputError:
        return proof, None


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
