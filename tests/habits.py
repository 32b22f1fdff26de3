"""Worlds, and logs of one habit: today's practice acts, and hardly varies."""

import csv
from math import comb
from pathlib import Path
from typing import NamedTuple

import numpy as np


class World(NamedTuple):
    """A known model `[S, A, S]`, its costs `[S, A, S]` by next state, and today's practice `[S, A]`."""

    kernel: np.ndarray
    cost: np.ndarray
    discount: float
    start: int
    today: np.ndarray

    def loss(self, policy: np.ndarray) -> float:
        """Return the discounted cost of a policy `[S, A]` from the start."""
        kernel = np.einsum("sa,sat->st", policy, self.kernel)
        cost = np.einsum("sa,sat,sat->s", policy, self.kernel, self.cost)
        return float(np.linalg.solve(np.eye(len(kernel)) - self.discount * kernel, cost)[self.start])

    def walk(self, steps: int, seed: int, policy: np.ndarray | None = None) -> list[tuple[int, int, int, float]]:
        """Draw one trajectory of today's practice, or of a policy, as (state, action, next state, cost)."""
        random, state, rows = np.random.default_rng(seed), self.start, []
        policy = self.today if policy is None else policy
        for _ in range(steps):
            action = int(random.choice(policy.shape[1], p=policy[state]))
            after = int(random.choice(len(policy), p=self.kernel[state, action]))
            rows.append((state, action, after, float(self.cost[state, action, after])))
            state = after
        return rows


def write_log(folder: Path, world: World, rows: list, problem: str) -> Path:
    """Write a log with costs, and a problem file that reads it; returns the problem file."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("state", "action", "next_state", "cost"), *rows])
    states, actions = world.today.shape
    head = f'states = {states}\nactions = {actions}\ndiscount = {world.discount}\nstart = "{world.start}"\n'
    path = folder / "problem.toml"
    path.write_text(head + problem)
    return path


def wet_chicken(random_share: float = 0.1) -> World:
    """Return the discrete Wet Chicken benchmark: 25 states `5 x + y`, the reward of a step is the new `x`."""
    kernel, today = np.zeros((25, 5, 25)), np.full((25, 5), random_share / 5)
    moves = ((0, 0), (-1, 0), (-2, 0), (0, -1), (0, 1))  # drift, neutral, maximum, left, right
    for x, y in np.ndindex(5, 5):
        velocity = 3.0 * y / 5.0
        for action, (dx, dy) in enumerate(moves):
            low, high = x + dx + velocity - (3.5 - velocity), x + dx + velocity + (3.5 - velocity)
            aside = min(max(y + dy, 0), 4)
            for place in range(-8, 14):
                share = max(0.0, min(high, place + 0.5) - max(low, place - 0.5)) / (high - low)
                kernel[5 * x + y, action, 0 if place >= 5 else 5 * max(place, 0) + aside] += share
        action = 2 if x > 2 else 4 if y < 2 else 3 if y > 2 else 2 if x == 2 else 1 if x == 1 else 0
        today[5 * x + y, action] += 1.0 - random_share
    return World(kernel, np.broadcast_to(-(np.arange(25) // 5).astype(float), kernel.shape), 0.95, 0, today)


def hospital() -> World:
    """Return a ward of 8 beds and up to 3 patients who wait: 36 states; admit, admit one, divert or discharge early.

    Today's doctors admit while a bed is free, divert when many wait, and seldom do anything else.
    """
    beds, queue, actions = 8, 3, 4
    number = np.arange((beds + 1) * (queue + 1)).reshape(beds + 1, queue + 1)
    kernel, cost = np.zeros((number.size, actions, number.size)), np.zeros((number.size, actions, number.size))
    today = np.full((number.size, actions), 0.01)
    arrive = np.array([0.35, 0.35, 0.2, 0.1])
    for full, waiting in np.ndindex(*number.shape):
        for action in range(actions):
            early = min(full, 2) if action == 3 else 0
            room = beds - full + early
            admitted = min(waiting, room, (waiting, 1, 0, waiting)[action])
            inside, left = full - early + admitted, waiting - admitted
            diverted = left if action == 2 else 0
            paid = 1.0 * (left - diverted) + 6.0 * diverted + 9.0 * early + (3.0 if inside == beds else 0.0)
            for gone in range(inside + 1):
                leaves = _binomial(inside, gone, 0.12)
                for come, chance in enumerate(arrive):
                    lost = max(0, left - diverted + come - queue)
                    after = number[inside - gone, left - diverted + come - lost]
                    kernel[number[full, waiting], action, after] += leaves * chance
            cost[number[full, waiting], action] = paid + 4.0 * (waiting == queue)
        usual = 0 if full < beds - 1 else 1 if waiting < 2 else 2
        today[number[full, waiting], usual] += 0.96
    return World(kernel, cost, 0.95, int(number[5, 1]), today)


def _binomial(n: int, k: int, p: float) -> float:
    return comb(n, k) * p**k * (1.0 - p) ** (n - k)


def lake_8x8() -> World:
    """Return Gymnasium's slippery 8 x 8 lake, where an episode that ended begins again; today's actions are random."""
    rows = ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG")
    kernel, cost = np.zeros((64, 4, 64)), np.zeros((64, 4, 64))
    step = ((0, -1), (1, 0), (0, 1), (-1, 0))
    for row, column in np.ndindex(8, 8):
        for action in range(4):
            for slip in (-1, 0, 1):
                dy, dx = step[(action + slip) % 4]
                after = 8 * min(max(row + dy, 0), 7) + min(max(column + dx, 0), 7)
                ended = rows[row][column] in "HG"
                kernel[8 * row + column, action, 8 * row + column if ended else after] += 1.0 / 3.0
    cost[np.arange(64) != 63, :, 63] = -1.0
    return World(kernel, cost, 0.97, 0, np.full((64, 4), 0.25))


def episodes(world: World, steps: int, seed: int) -> list[tuple[int, int, int, float]]:
    """Draw a log of episodes: a state that is never left ends one, and the next begins at the start."""
    random, rows, state = np.random.default_rng(seed), [], world.start
    ends = np.all(world.kernel[np.arange(64), :, np.arange(64)] == 1.0, axis=1)
    while len(rows) < steps:
        action = int(random.choice(world.today.shape[1], p=world.today[state]))
        after = int(random.choice(len(ends), p=world.kernel[state, action]))
        rows.append((state, action, after, float(world.cost[state, action, after])))
        state = world.start if ends[after] else after
    return rows


def lake_log_of_two_rewards(steps: int = 20_000) -> tuple[World, list]:
    """Return the lake and the first log of random steps that shows the reward twice, both times by one pair."""
    world = lake_8x8()
    for seed in range(1000):
        rows = episodes(world, steps, seed)
        paid = [row[:2] for row in rows if row[3] != 0.0]
        if len(paid) == 2 and len(set(paid)) == 1:
            return world, rows
    raise AssertionError("no such log was found")


# Pairs never tried are free: what a user may write who has not thought of them.
FREE = '[data]\ntransitions = "log.csv"\ndefault_cost = 0\n'

# The slow part is the search, and the word of the evidence does not depend on its last digits.
QUICK = "[solver]\nsamples = 64\nlargest = 64\nstarts = 2\niterations = 40\n"
