"""What a loss refuses, and what the check of a loss finds: each message says what, where and the way out."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

from .problems import random_mdp

MDP = random_mdp(np.random.default_rng(3), 3, actions=2)
OCCUPANCY = pr.occupancy(MDP, np.full((3, 2), 0.5))
THIRD = np.full(3, 1 / 3)
ONES = np.ones((2, 3, 2))
RISK = pr.CVaR(0.5)


def called(loss):
    return lambda: loss(OCCUPANCY, MDP)


CASES = {
    "target sums to 1/(1 - discount)": (lambda: pr.Imitation(OCCUPANCY), "sums to 10; multiply an occupancy by 1 - d"),
    "target negative": (lambda: pr.Imitation([[0.5, 0.75], [-0.25, 0.0]]), r"-0.25 at state 1, action 0"),
    "target not finite": (lambda: pr.Imitation([0.5, np.nan]), r"target has a non-finite entry: nan"),
    "target of three axes": (lambda: pr.Imitation(ONES / 12), r"\[state\] or \[state, action\], got shape \(2, 3, 2\)"),
    "target of words": (lambda: pr.Imitation(["a", "b"]), "target: expected an array of numbers"),
    "target zero at floor 0": (lambda: pr.Imitation([0.5, 0.0, 0.5], floor=0), "zero at state 1; give a floor"),
    "floor above uniform": (lambda: pr.Imitation(THIRD, floor=0.5), r"floor must be a number in \[0, 1/3\)"),
    "floor of words": (lambda: pr.Imitation(THIRD, floor="low"), "floor must be a number"),
    "divergence of words": (lambda: pr.Imitation(THIRD, "kl"), "must be a Divergence, such as KullbackLeibler"),
    "target of another model": (called(pr.Imitation([0.5, 0.5])), r"shape \(2,\), the model has 3 states and 2"),
    "distance of another model": (called(pr.QuadraticDistance(np.ones((2, 3)))), r"give \(3,\).* or \(3, 2\)"),
    "distance to infinity": (lambda: pr.QuadraticDistance([np.inf]), "non-finite entry: inf"),
    "distance to a number": (lambda: pr.QuadraticDistance(1.0), r"got shape \(\)"),
    "weight zero": (lambda: pr.QuadraticDistance(THIRD, weight=0), r"weight must lie in \(0, inf\), got 0"),
    "smoothing zero": (lambda: pr.TotalVariation(0.0), "smoothing must lie in"),
    "divergence floor": (lambda: pr.KullbackLeibler(floor=0.0), r"floor of KullbackLeibler must .* \(0, 1\), got 0.0"),
    "entropy over words": (lambda: pr.NegativeEntropy("states"), "over_states must be True or False"),
    "scenarios of two axes": (lambda: pr.ConstrainedCost(ONES[0], 1, 1, RISK), r"\[scenario, state, action\]"),
    "scenarios not finite": (lambda: pr.ConstrainedCost(ONES * np.nan, 1, 1, RISK), "scenarios has a non-finite"),
    "multiplier negative": (lambda: pr.ConstrainedCost(ONES, -1, 1, RISK), r"multiplier must lie in .*, got -1"),
    "limit not finite": (lambda: pr.ConstrainedCost(ONES, 1, np.inf, RISK), r"limit must lie in .*, got inf"),
    "risk without density": (lambda: pr.ConstrainedCost(ONES, 1, 1, 0.9), "density.*such as CVaR.*got 0.9"),
    "probabilities too many": (lambda: pr.ConstrainedCost(ONES, 1, 1, RISK, THIRD), "2 scenarios need as many"),
    "probabilities of 2": (lambda: pr.ConstrainedCost(ONES, 1, 1, RISK, [1.0, 1.0]), "probabilities must sum to 1"),
    "scenarios of another model": (
        called(pr.ConstrainedCost(np.ones((2, 4, 2)), 1, 1, RISK)),
        r"shape \(2, 4, 2\), the model needs",
    ),
    "multiple negative": (
        lambda: -1.0 * pr.NegativeEntropy(),
        r"multiple of a loss must lie in \[0, inf\), got -1.0; .*convex",
    ),
    "multiple not finite": (lambda: pr.NegativeEntropy() * np.nan, r"must lie in \[0, inf\), got nan"),
    "multiple an array": (lambda: pr.NegativeEntropy() * THIRD, "must be one number"),
    "sum with a number": (
        lambda: pr.ExpectedCost() + 3.0,
        r"a loss is a function \(occupancy, mdp\) -> number, got 3.0",
    ),
    "number plus loss": (lambda: 3.0 + pr.ExpectedCost(), "got 3.0"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused(name):
    call, message = CASES[name]
    with pytest.raises(pr.InputError, match=message):
        call()


@jax.custom_jvp
def doubled(x):
    return x**2


@doubled.defjvp
def _(primals, tangents):
    return primals[0] ** 2, 4.0 * primals[0] * tangents[0]


def stopped(occupancy, mdp):
    return (occupancy * jax.lax.stop_gradient(occupancy)).sum()


class Offset(pr.ConvexLoss):
    """A loss with one part spoilt at a time."""

    constant: float
    factor: float

    def __call__(self, occupancy, mdp):
        return (occupancy**2).sum() / 2

    def linear(self, mdp):
        return jnp.zeros(mdp.cost.shape)

    def image(self, occupancy, mdp):
        return occupancy + self.constant

    def begin(self, mdp):
        return pr.Dual(jnp.zeros(mdp.cost.shape), None)

    def ascend(self, dual, image, mdp):
        return pr.Dual(self.factor * image, None)


FOUND = {
    "concave": (lambda x, mdp: -(x**2).sum(), "not convex: .* at the ends, and -.* of the way, above the chord's -"),
    "a saddle": (lambda x, mdp: x[0, 0] * x[1, 1], "not convex"),
    "a sine": (lambda x, mdp: jnp.sin(3 * x).sum(), "not convex"),
    "nan": (lambda x, mdp: jnp.log(x - 0.2).sum(), r"the loss is nan at .* least entry is .*state \d, action \d"),
    "infinite slope": (lambda x, mdp: -jnp.sqrt(0.0 * x[1, 0]), "gradient of the loss is -?(nan|inf) at state"),
    "wrong rule": (lambda x, mdp: doubled(x).sum(), "gradient of the loss is wrong: .* differences say .* custom"),
    "stopped gradient": (stopped, "gradient of the loss is wrong"),
    "two numbers": (lambda x, mdp: x.sum(axis=0), "must return one number"),
    "a whole number": (lambda x, mdp: jnp.argmax(x), "must return a real number"),
    "a failure": (lambda x: x, "could not be evaluated"),
    "image with a constant": (Offset(1.0, 1.0), "image of Offset is not linear"),
    "ascent to elsewhere": (Offset(0.0, 1.1), r"ascent of Offset does not end at the gradient: .* state \d, action \d"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_check_of_a_loss_finds_what_is_wrong(name):
    loss, message = FOUND[name]
    with pytest.raises(pr.InputError, match=re.compile(message, re.DOTALL)):
        pr.check_loss(loss, MDP)


def test_the_check_passes_the_sound_version():
    assert pr.check_loss(Offset(0.0, 1.0), MDP, samples=2).subject == "Offset"


def test_the_check_needs_a_model():
    with pytest.raises(pr.InputError, match="mdp must be an MDP"):
        pr.check_loss(pr.ExpectedCost(), pr.envs.frozen_lake())
    with pytest.raises(pr.InputError, match="samples must be a whole number >= 1"):
        pr.check_loss(pr.ExpectedCost(), MDP, samples=0)
