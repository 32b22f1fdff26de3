"""Chains of the no-U-turn sampler, run by NumPyro, and whether they agree."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special, stats

from ..arrays import in_float64, is_jax_array, require_kind
from ..autodiff import jax, jnp
from ..errors import InputError
from ..records import tree_map
from ..seeds import halves
from ..transitions import Likelihood

try:
    import numpyro
    from numpyro import infer
    from numpyro.diagnostics import effective_sample_size, gelman_rubin
    from numpyro.distributions import Distribution
except ModuleNotFoundError:
    raise InputError('MCMC needs NumPyro, which is not installed; pip install "prudent[mcmc]"') from None


@in_float64
def sample(likelihood: Likelihood, prior: Any, settings: Any) -> tuple[Float[np.ndarray, "H M ..."], int]:
    """Return draws `[chains, samples, ...]` and the number of divergences."""
    require_kind("prior", prior, Distribution, "a NumPyro distribution, such as Uniform(0.0, 1.0).expand([2])")
    # Parameters made outside float64 would pull theta down to float32.
    prior = tree_map(lambda leaf: np.float64(leaf) if _is_float(leaf) else leaf, prior)

    def model(likelihood: Likelihood) -> None:
        theta = jnp.asarray(numpyro.sample("theta", prior))
        numpyro.factor("log_likelihood", likelihood.value(theta)[0])

    key = jax.random.wrap_key_data(jnp.asarray(halves(settings.seed), jnp.uint32), impl="threefry2x32")
    likelihood.check(prior.sample(key))
    jax.eval_shape(likelihood.value, jax.ShapeDtypeStruct(prior.shape(), np.float64))
    run = infer.MCMC(
        infer.NUTS(model, target_accept_prob=settings.target_acceptance),
        num_warmup=settings.warmup,
        num_samples=settings.samples,
        num_chains=settings.chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    try:
        run.run(key, likelihood, extra_fields=("diverging",))
    except RuntimeError as error:
        if "valid initial" not in str(error):
            raise
        raise InputError(
            "the sampler finds no theta of the prior at which the log is possible and the density finite; "
            "correct the prior or the log"
        ) from None
    return np.asarray(run.get_samples(group_by_chain=True)["theta"]), int(run.get_extra_fields()["diverging"].sum())


def _is_float(leaf: Any) -> bool:
    return (isinstance(leaf, np.ndarray) or is_jax_array(leaf)) and np.issubdtype(leaf.dtype, np.floating)


def diagnose(draws: Float[np.ndarray, "H M ..."]) -> tuple[Float[np.ndarray, ...], Float[np.ndarray, ...]]:
    """Return rank-normalised split R-hat, and the smaller of bulk and tail effective sample size, of each entry.

    Ranks make both meaningful for heavy tails, and the folded R-hat sees chains that differ in spread alone.
    """
    chains, length = draws.shape[:2]
    half = length // 2
    split = np.concatenate([draws[:, :half], draws[:, length - half :]]).reshape(2 * chains, half, -1)
    # Entries that cannot move, as the only successor of a row, agree and need no draws.
    fixed = np.all(split == split[:1, :1], axis=(0, 1))
    folded = np.abs(split - np.median(split, axis=(0, 1)))
    low, high = np.quantile(split, [0.05, 0.95], axis=(0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.maximum(gelman_rubin(_normal_ranks(split)), gelman_rubin(_normal_ranks(folded)))
        parts = [_normal_ranks(split), (split <= low).astype(float), (split <= high).astype(float)]
        effective = np.min([effective_sample_size(part) for part in parts], axis=0)
    rhat = np.where(fixed, 1.0, np.nan_to_num(rhat, nan=np.inf, posinf=np.inf))
    effective = np.where(fixed, float(chains * length), np.nan_to_num(effective, nan=0.0, posinf=0.0))
    return rhat.reshape(draws.shape[2:]), effective.reshape(draws.shape[2:])


def _normal_ranks(values: Float[np.ndarray, "H M E"]) -> Float[np.ndarray, "H M E"]:
    ranks = stats.rankdata(values.reshape(-1, values.shape[2]), axis=0)
    return special.ndtri((ranks - 0.375) / (len(ranks) + 0.25)).reshape(values.shape)
