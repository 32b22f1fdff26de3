"""Policies put to work: read from a file, and tried in a Gymnasium environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, require_size
from ..errors import InputError
from ..linear import LinearGaussianPolicy
from ..policies import NeuralPolicy, TabularPolicy, policy_from
from ..records import Record

KINDS = {"table": TabularPolicy, "network": NeuralPolicy, "linear": LinearGaussianPolicy}


def load_policy(path: str | Path) -> Any:
    """The policy that `policy.save(path)` wrote, whatever its kind; a file that is none is refused.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pr.TabularPolicy([[0.0, 1.0]], actions=["run", "service"]).save(f"{folder}/policy.json")
    ...     pr.load_policy(path).act("0")
    'service'
    """
    return policy_from(path, KINDS)


class Trial(Record):
    """Episodes of a policy in an environment.

    >>> import numpy as np, prudent as pr
    >>> trial = pr.Trial(rewards=np.array([1.0, 0.0]), discounted=np.array([0.5, 0.0]), steps=np.array([7, 3]), ended=2)
    >>> trial.mean, round(trial.standard_error, 3)
    (0.5, 0.5)

    Attributes:
        rewards: the sum of rewards of each episode.
        discounted: the same, discounted.
        steps: how long each was.
        ended: how many ended by themselves; the others were cut off by a limit of steps.
    """

    rewards: Float[Array, " E"]
    discounted: Float[Array, " E"]
    steps: Int[Array, " E"]
    ended: int

    @property
    def mean(self) -> float:
        """The mean sum of rewards."""
        return float(np.mean(self.rewards))

    @property
    def standard_error(self) -> float:
        """Of the mean; NaN of a single episode."""
        count = len(self.rewards)
        return float(np.std(self.rewards, ddof=1) / np.sqrt(count)) if count > 1 else float("nan")

    def __str__(self) -> str:
        error = f" ± {self.standard_error:.4g}" if len(self.rewards) > 1 else ""
        cut = len(self.rewards) - self.ended
        return (
            f"reward {self.mean:.4g}{error} (standard error) over {len(self.rewards)} episodes of "
            f"{np.mean(self.steps):.4g} steps" + (f", {cut} of them cut off" if cut else "")
        )


def evaluate_in(
    env: Any,
    policy: Any,
    episodes: int = 100,
    *,
    discount: float = 1.0,
    steps: int = 10_000,
    deterministic: bool = False,
    seed: int = 0,
) -> Trial:
    """Act by a policy in a Gymnasium environment, episode after episode, and add up the rewards.

    Args:
        env: made by `gymnasium.make` (or anything with its `reset` and `step`).
        policy: anything with `predict`, as policies here and Stable-Baselines3's models have it; or a table `[S, A]`.
        episodes: how many.
        discount: in [0, 1], of `discounted`.
        steps: most steps of an episode; the environment's own limit holds, too.
        deterministic: the most probable action in the place of a random one.
        seed: of the environment's random numbers and of the policy's; the same seed, the same rewards.

    >>> import gymnasium, numpy as np, prudent as pr
    >>> trial = pr.evaluate_in(gymnasium.make("FrozenLake-v1"), np.full((16, 4), 0.25), episodes=20)
    >>> len(trial.rewards), 0.0 <= trial.mean <= 1.0
    (20, True)
    """
    require_size("episodes", episodes)
    require_size("steps", steps)
    if not 0.0 <= discount <= 1.0:
        raise InputError(f"discount must lie in [0, 1], got {discount}")
    for name in ("reset", "step"):
        if not callable(getattr(env, name, None)):
            raise InputError(f"env has no {name}(); give an environment such as gymnasium.make('FrozenLake-v1')")
    acting = policy if callable(getattr(policy, "predict", None)) else TabularPolicy(policy)
    own = isinstance(acting, TabularPolicy | NeuralPolicy)
    random = np.random.default_rng(seed)
    rewards, discounted, lengths, ended = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes, int), 0
    for episode in range(episodes):
        observation, _ = env.reset(seed=int(random.integers(2**31)))
        weight = 1.0
        for _ in range(steps):
            more = {"seed": random} if own else {}
            action, _ = acting.predict(observation, deterministic=deterministic, **more)
            observation, reward, terminated, truncated, _ = env.step(_scalar(action))
            rewards[episode] += reward
            discounted[episode] += weight * reward
            weight *= discount
            lengths[episode] += 1
            if terminated or truncated:
                ended += bool(terminated)
                break
    return Trial(rewards, discounted, lengths, ended)


def _scalar(action: Any) -> Any:
    """One action of a discrete space as a whole number; a vector as it is."""
    array = np.asarray(action)
    return int(array) if array.ndim == 0 and array.dtype.kind in "iu" else action
