"""Prove how good a run's policy is, and have the proof checked by code that did not find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import prudent_verifier

from ..errors import InputError
from ..proofs import Moment, Proof, prove, write_proof
from .checkpoint import episode_seed, read_checkpoint
from .folder import require_run

PROOF = "proof.safetensors"


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
    progress: Callable[[Moment], None] | None = None,
) -> ProvedRun:
    """Search all stationary policies for one that beats a run's; arguments are those of `prove`.

    The file `proof.safetensors` in the run's folder is for `verify_run`.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     proof = pr.prove_run(run.folder, samples=4, gap=0.5, seconds=5.0).proof
    >>> proof.lower_bound <= proof.risk
    True
    """
    folder = Path(folder)
    saved = read_checkpoint(require_run(folder), trust)
    arguments = saved.case.arguments()
    proof = prove(
        arguments["model"],
        arguments["belief"],
        risk=arguments["risk"],
        loss=arguments["loss"],
        start=saved.policy,
        gap=gap,
        seconds=seconds,
        deterministic=deterministic,
        samples=samples,
        replications=replications,
        seed=episode_seed(arguments["seed"], saved.episode),
        progress=progress,
    )
    try:
        path = write_proof(proof, folder / PROOF, {"problem": saved.case.digest()})
    except InputError:
        path = None
    return ProvedRun(proof, path)


def verify_run(folder: str | Path, *, trust: bool = False) -> prudent_verifier.Verdict:
    """Check the proof in a run's folder by code that shares nothing with what found it; refused if it does not hold.

    >>> import prudent as pr
    >>> pr.verify_run("no-such-folder")
    Traceback (most recent call last):
    prudent.errors.InputError: no-such-folder: there is no such folder; name the --out folder of prudent solve
    """
    checkpoint, path = require_run(Path(folder)), Path(folder) / PROOF
    if not path.is_file():
        raise InputError(f"{path}: there is no proof; make one with prudent prove {folder}")
    try:
        verdict = prudent_verifier.verify(path)
    except prudent_verifier.Refused as refusal:
        raise InputError(f"{path}: the proof does not hold: {refusal}") from None
    digests = prudent_verifier.read(path)[1].get("digests")
    now = read_checkpoint(checkpoint, trust).case.digest()
    if not isinstance(digests, dict) or digests.get("problem") != now:
        raise InputError(f"{path}: the proof holds, but for another problem than the run's; prove it again")
    return verdict
