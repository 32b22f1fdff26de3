"""The frozen lake of the paper: unknown chances of slipping on ice and of escaping from a hole."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from ..arrays import Array, namespace_of, require_kind, require_number
from ..engine import ModelBatch
from ..episodes import SimulatedWorld, World
from ..errors import InputError
from ..events import AbstractEventFamily
from ..kernels import Support
from ..policies import TabularPolicy, action_probabilities
from ..posteriors import Beta
from ..records import field
from ..transitions import Trials
from .coins import check_theta, check_truth, coin_trials

RECONSTRUCTED_MAP = """
SFHFF
FFFFF
FFHFF
FFHFH
HFHFG
"""
"""The 5 x 5 map of the paper's experiment as we reconstructed it.

The paper shows its map only in a figure that is not available. This placement of the six holes is the
best joint fit to the published results; it is a reconstruction, not the authors' own map.
"""

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
ARROWS = np.array(["←", "↓", "→", "↑"])
TILES = "SFHG"
NAMES = ("slip", "escape")


class FrozenLake(AbstractEventFamily):
    """Slippery grid: `theta = (slip, escape)`, cost 1 a move on ice, more in a hole, 0 at the goal.

    On ice the move goes as intended with probability `1 - slip` and to either side with `slip / 2`;
    off the grid is staying put. In a hole it goes as intended with probability `escape`, otherwise the
    agent stays; a try costs `2 - escape` on average (uniform on `[1, 1 + 2 (1 - escape)]`). The goal
    is absorbing and free. Build one with `frozen_lake`.

    Attributes:
        classes: 1 in holes, 0 elsewhere.
        tiles: the rows of the map, characters S (start), F (ice), H (hole), G (goal).
        hole, goal: `[S]` which states those are.
        prior: Beta(1, 1) on each coordinate.
    """

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    classes: Int[Array, "S A"]  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
    hole: Bool[Array, " S"]
    goal: Bool[Array, " S"]
    prior: Beta
    tiles: tuple[str, ...] = field(static=True)

    def events(self, theta: Float[Array, "2 ..."]) -> Float[Array, "2 3 ..."]:
        """On ice (as intended, to one side, to the other), in holes (out, stay, stay)."""
        check_theta(theta, NAMES, "a frozen lake")
        (slip, escape), xp = theta, namespace_of(theta)
        ice = xp.stack([1.0 - slip, slip / 2.0, slip / 2.0])
        hole = xp.stack([escape, 1.0 - escape, xp.zeros_like(slip)])
        return xp.stack([ice, hole])

    def cost(self, theta: Float[Array, "2 ..."]) -> Float[Array, "S A ..."]:
        """Mean cost of one action."""
        rows, xp = (slice(None), *(None,) * (theta.ndim - 1)), namespace_of(theta)
        by_state = xp.where(self.goal[rows], 0.0, xp.where(self.hole[rows], 2.0 - theta[1], 1.0))
        return xp.broadcast_to(by_state[:, None], (*self.support.shape[:2], *theta.shape[1:]))

    def models(self, thetas: ArrayLike) -> ModelBatch:
        """Return the models at N thetas, in which ice and holes each share a row."""
        last = np.ascontiguousarray(np.asarray(thetas, float).T)
        return ModelBatch(
            self.support.index(),
            np.asarray(self.classes),
            np.asarray(self.events(last)),
            np.asarray(self.cost(last)),
            np.asarray(self.start),
            float(self.discount),
        )

    def tables(self, thetas: Float[np.ndarray, "N 2"]) -> tuple[np.ndarray, np.ndarray]:
        """Return kernels and costs of N thetas."""
        models = self.models(thetas)
        return np.moveaxis(models.probability[models.row], -1, 0), np.moveaxis(models.cost, -1, 0)

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """`slip` or `escape`."""
        del shape
        return NAMES[place[0]]

    def trials(self, n: int, truth: Any, seed: Any = 0) -> Trials:
        """The log of `n` slip trials and `n` escape trials, coins with the true probabilities.

        >>> import prudent as pr
        >>> pr.envs.frozen_lake().trials(n=5, truth=(0.3, 0.02), seed=0).counts.sum(axis=1).tolist()
        [5.0, 5.0]
        """
        return coin_trials(n, check_truth(truth, NAMES), seed)

    def world(self, truth: Any, steps: int = 100, rollouts: int = 1) -> LakeWorld:
        """The lake at its true theta, to deploy policies in.

        >>> import numpy as np, prudent as pr
        >>> lake = pr.envs.frozen_lake()
        >>> log = lake.world((0.3, 0.02)).deploy(pr.TabularPolicy(np.full((25, 4), 0.25)), np.random.default_rng(0))
        >>> log.counts.shape
        (2, 2)
        """
        return LakeWorld(self, SimulatedWorld(self, truth, steps, rollouts))

    def draw(self, policy: Any) -> str:
        """The map with the most probable action of each tile as an arrow.

        >>> import numpy as np, prudent as pr
        >>> print(pr.envs.frozen_lake("SF\\nHG").draw(np.eye(4)[[2, 1, 0, 0]]))
        → ↓
        H G
        """
        table = action_probabilities(policy, *self.support.shape[:2])
        arrows = ARROWS[table.argmax(axis=1)]
        symbols = np.where(np.asarray(self.hole), "H", np.where(np.asarray(self.goal), "G", arrows))
        return "\n".join(" ".join(row) for row in symbols.reshape(len(self.tiles), -1))


class LakeWorld(World):
    """A lake on which one sees what happened.

    A move on ice logs whether it slipped, a try in a hole whether it escaped. A plain log of states, which
    does not always tell, comes from `SimulatedWorld`.
    """

    lake: FrozenLake
    simulated: SimulatedWorld

    def deploy(self, policy: TabularPolicy, generator: np.random.Generator) -> Trials:
        """Slips and escapes of all walks, as trials; nothing is learned at the goal."""
        state, _, slot = self.simulated.walk(policy, generator)
        hole, goal = np.asarray(self.lake.hole), np.asarray(self.lake.goal)
        in_hole, on_ice = hole[state], ~(hole | goal)[state]
        counts = [
            [np.sum(on_ice & (slot > 0)), np.sum(on_ice & (slot == 0))],
            [np.sum(in_hole & (slot == 0)), np.sum(in_hole & (slot > 0))],
        ]
        return Trials(counts)


def frozen_lake(tiles: str = RECONSTRUCTED_MAP, discount: float = 0.97) -> FrozenLake:
    """A frozen lake from any rectangular map.

    Args:
        tiles: one line a row, characters S (start, one), G (goal, at least one), H (hole), F (ice);
            blanks are ignored. The default is our reconstruction of the paper's map.
        discount: in [0, 1).

    >>> import prudent as pr
    >>> pr.envs.frozen_lake("SFF\\nFHG").support.shape
    (6, 4, 3)
    """
    require_kind("the map", tiles, str, "text with one line a row, such as 'SF\\nHG'")
    rows = tuple("".join(line.split()) for line in tiles.strip().splitlines())
    rows = tuple(row for row in rows if row)
    _check_map(rows)
    height, width = len(rows), len(rows[0])
    tile = np.array([list(row) for row in rows]).ravel()
    hole, goal = tile == "H", tile == "G"
    landing = landings(height, width)
    successor = np.stack([landing, np.roll(landing, 1, axis=1), np.roll(landing, -1, axis=1)], axis=2)
    stay = np.broadcast_to(np.arange(len(landing))[:, None], landing.shape)
    in_hole = np.stack([landing, stay, stay], axis=2)
    successor = np.where(hole[:, None, None], in_hole, successor)
    successor = np.where(goal[:, None, None], stay[:, :, None], successor)
    return FrozenLake(
        support=Support.lists(successor),
        start=(tile == "S").astype(float),
        discount=require_number("discount", discount, "[0, 1)"),
        classes=np.repeat(hole.astype(np.int32)[:, None], len(MOVES), axis=1),
        hole=hole,
        goal=goal,
        prior=Beta.uniform(2),
        tiles=rows,
    )


def landings(height: int, width: int) -> Int[np.ndarray, "S 4"]:
    """Where each move leads on a grid; off it is staying put."""
    row, column = np.divmod(np.arange(height * width), width)
    down, right = np.array(list(MOVES.values())).T
    below = np.clip(row[:, None] + down, 0, height - 1)
    return below * width + np.clip(column[:, None] + right, 0, width - 1)


def _check_map(rows: tuple[str, ...]) -> None:
    if not rows:
        raise InputError("the map is empty; give one line a row, such as 'SF\\nHG'")
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InputError(
                f"row {number} of the map has {len(row)} tiles, row 0 has {len(rows[0])}; rows must be equal"
            )
        for column, tile in enumerate(row):
            if tile not in TILES:
                raise InputError(f"unknown tile {tile!r} at row {number}, column {column}; use S, F, H and G")
    text = "".join(rows)
    if text.count("S") != 1 or "G" not in text:
        raise InputError(f"a map needs one S and at least one G, got {text.count('S')} and {text.count('G')}")
