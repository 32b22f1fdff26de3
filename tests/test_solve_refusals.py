"""`solve` refuses bad input before its loop is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

from .sound_parts import (
    COIN,
    COST,
    DENSE,
    DIRICHLET,
    LAKE,
    MDP,
    NAN,
    SMALL,
    STAY,
    TABULAR,
    UNIFORM,
    family,
    move,
    table,
)


class Drawn(pr.Posterior):
    """A user's posterior whose draws are whatever `make(n)` returns."""

    make: object

    def draw(self, generator, n):
        return self.make(n)


class Narrow(pr.Parametrisation):
    """A user's policy with one action too few."""

    within: pr.Everywhere = pr.Everywhere()

    def initial(self, states, actions):
        return jnp.zeros((states, actions - 1))

    def probabilities(self, parameters):
        return jax.nn.softmax(parameters, axis=-1)


class Unnormalised(pr.Parametrisation):
    """A user's policy whose rows sum to the number of actions."""

    within: pr.Everywhere = pr.Everywhere()

    def initial(self, states, actions):
        return jnp.zeros((states, actions))

    def probabilities(self, parameters):
        return jnp.exp(parameters)


def attempt(model=STAY, belief=COIN, **changes):
    return pr.solve(model, belief, **({"solver": SMALL} | changes))


def raises(occupancy, mdp):
    raise RuntimeError("no licence for this loss")


# State 1 of this family is never reached, so its occupancy is exactly 0.
ALONE = pr.Family(DENSE, np.broadcast_to(np.eye(2)[:, None], (2, 2, 2)), COST, start=0, discount=0.9)
OTHER_SUPPORT = pr.Support.lists([[[0, 1], [0, 1]], [[1, 0], [0, 1]]])


class Plain(pr.Risk):
    """A risk written with NumPy."""

    def density(self, losses, probabilities):
        return np.ones(len(losses)) + 0.0 * np.asarray(losses)


class Begins(pr.AbstractFamily):
    """A family whose start is whatever it is given."""

    start: object
    support: pr.Support = DENSE
    discount: float = 0.9

    def probability(self, theta):
        return STAY.probability(theta)

    def cost(self, theta):
        return STAY.cost(theta)


NAMED = pr.Family(DENSE, STAY.probability_of, COST, start=0, discount=0.9, unknowns=["stay", "leave"])

SOLVE = (
    ("start whole", lambda: attempt(Begins(np.array([1, 0]))), r"start of Begins must be.*as floats, got int"),
    ("start a state", lambda: attempt(Begins(0)), r"start of Begins must be.*np.eye\(2\)\[s\]"),
    ("unknowns", lambda: attempt(NAMED), r"has 2 unknowns \(stay, leave\), a draw the shape \(1,\)"),
    (
        "loss a vector",
        lambda: attempt(loss=lambda occupancy, mdp: occupancy[0]),
        r"loss must return one number.*sum or",
    ),
    ("loss None", lambda: attempt(loss=lambda occupancy, mdp: None), r"loss must return one number, got None"),
    (
        "loss a pair",
        lambda: attempt(loss=lambda occupancy, mdp: (occupancy.sum(),) * 2),
        r"loss must return one number",
    ),
    ("loss nan", lambda: attempt(loss=lambda o, mdp: jnp.log(-o).sum()), r"loss is nan at the starting policy; keep"),
    ("loss infinite", lambda: attempt(loss=lambda o, mdp: o.sum() / 0.0), r"loss is inf at the starting policy; keep"),
    ("loss whole", lambda: attempt(loss=lambda o, mdp: jnp.argmax(o)), r"loss must return a real number, got int"),
    ("loss truth", lambda: attempt(loss=lambda o, mdp: o.sum() > 1), r"loss must return a real number, got bool"),
    ("loss complex", lambda: attempt(loss=lambda o, mdp: 1j * o.sum()), r"loss must return a real number, got complex"),
    (
        "loss slope",
        lambda: attempt(ALONE, loss=lambda o, mdp: jnp.sqrt(o).sum()),
        r"gradient of the loss is inf.*state 1, action 0, occupancy 0",
    ),
    (
        "loss slope nan",
        lambda: attempt(ALONE, loss=lambda o, mdp: jnp.where(o > 0, o * jnp.log(o), 0.0).sum()),
        r"gradient of the loss is nan.*state 1, action 0.*off zero",
    ),
    (
        "loss signature",
        lambda: attempt(loss=lambda occupancy: occupancy.sum()),
        r"could not be evaluated.*loss\(occupa",
    ),
    ("loss in NumPy", lambda: attempt(loss=lambda o, mdp: np.array(o).sum()), r"could not be evaluated"),
    ("loss shapes", lambda: attempt(loss=lambda o, mdp: (o * jnp.ones(3)).sum()), r"could not be evaluated"),
    ("loss raises", lambda: attempt(loss=raises), r"could not be evaluated.*no licence"),
    ("loss a number", lambda: attempt(loss=3.0), r"loss must be a function \(occupancy, mdp\)"),
    (
        "probability shape",
        lambda: attempt(family(probability=lambda theta: theta)),
        r"draw theta = .*returned shape \(1,\), expected \(2, 2, 2\)",
    ),
    (
        "probability off 1",
        lambda: attempt(family(probability=lambda theta: move(theta) * (1 + theta[0]))),
        r"draw theta = \[0.*sum to 1.*state 0, action 0",
    ),
    (
        "probability nan",
        lambda: attempt(family(probability=lambda theta: jnp.log(-theta[0]) * move(theta))),
        r"draw theta = .*nan at index",
    ),
    (
        "probability a list",
        lambda: attempt(family(probability=lambda theta: [[theta[0]]])),
        r"probability|famil.*posterior draw",
    ),
    (
        "probability raises",
        lambda: attempt(family(probability=lambda theta: {}["missing"])),
        r"famil.*posterior draw.*missing",
    ),
    ("cost shape", lambda: attempt(family(cost=lambda theta: theta)), r"draw theta = .*cost must have shape"),
    ("cost nan", lambda: attempt(family(cost=lambda theta: COST * jnp.log(-theta[0]))), r"draw theta = .*cost.*nan"),
    ("belief beyond chance", lambda: attempt(belief=pr.Point([1.5])), r"theta = \[1.5\].*negative.*state 0, action 0"),
    ("belief of another kind", lambda: attempt(belief=[0.5]), r"belief must be a posterior"),
    ("belief too short", lambda: attempt(LAKE, pr.Beta.uniform(1)), r"\(1,\)|theta.*2|two"),
    ("belief too long", lambda: attempt(LAKE, pr.Beta.uniform(3)), r"\(3,\)|theta.*2|two"),
    ("belief a table", lambda: attempt(LAKE, DIRICHLET), r"(?s)posterior draw.*\(2, 2, 2\)"),
    ("belief no table", lambda: attempt(TABULAR, pr.Beta.uniform(2)), r"\(2,\).*support.*\(2, 2, 2\)"),
    ("belief nan", lambda: attempt(belief=Drawn(lambda n: np.full((n, 1), NAN))), r"posterior draw of theta.*nan"),
    ("belief one draw for n", lambda: attempt(belief=Drawn(lambda n: np.full((1, 1), 0.5))), r"draw|\(1, 1\)"),
    ("belief no batch", lambda: attempt(belief=Drawn(lambda n: np.array([0.5]))), r"posterior draw of shape \(\)|draw"),
    ("belief of words", lambda: attempt(belief=Drawn(lambda n: [["half"]] * n)), r"draw|half"),
    (
        "supports differ in size",
        lambda: attempt(TABULAR, pr.Dirichlet.symmetric(pr.Support.dense(3, 2))),
        r"different supports \(\(2, 2, 2\) and \(3, 2, 3\).*same Support",
    ),
    (
        "supports differ",
        lambda: attempt(TABULAR, pr.Dirichlet.symmetric(OTHER_SUPPORT)),
        r"different supports.*same Supp",
    ),
    ("model an mdp", lambda: attempt(MDP), r"model must be a family.*Family\(\.\.\.\).*got MDP"),
    ("risk a level", lambda: attempt(risk=0.9), r"risk must be a risk such as CVaR\(0.9\), got 0.9"),
    (
        "risk of several levels",
        lambda: attempt(risk=pr.CVaR([0.5, 0.9])),
        r"CVaR level must be one number in \[0, 1\), got",
    ),
    ("policy a table", lambda: attempt(policy=UNIFORM), r"policy must be a parametrisation such as Softmax\(\)"),
    ("policy too narrow", lambda: attempt(policy=Narrow()), r"policy gives shape \(2, 1\).*\(2, 2\)"),
    ("policy off 1", lambda: attempt(policy=Unnormalised()), r"policy must sum to 1.*2.0 at state 0"),
    (
        "solver a number",
        lambda: attempt(solver=100),
        r"solver must be SampleAverage\(\.\.\.\) or BRPG\(\.\.\.\), got 100",
    ),
    ("output a word", lambda: attempt(solver=pr.BRPG(output="last")), r"output"),
    (
        "gradient a word",
        lambda: attempt(gradient="exact"),
        r"gradient must be Adjoint\(\), Variational\(\) or ZerothOrder\(\), got 'exact'",
    ),
    ("occupancy a word", lambda: attempt(occupancy="exact"), r"occupancy must be Exact\(\) or Truncated.*'exact'"),
    ("seed", lambda: attempt(seed=0.5), r"seed.*got 0.5"),
    ("no belief", lambda: pr.solve_many(STAY, [], [pr.CVaR(0.9)], solver=SMALL), r"at least one belief.*0 and 1"),
    ("no risk", lambda: pr.solve_many(STAY, [COIN], [], solver=SMALL), r"at least one belief.*1 and 0"),
    (
        "one belief of several",
        lambda: pr.solve_many(STAY, [COIN, pr.Point([1.5])], [pr.CVaR(0.9)], solver=SMALL),
        r"theta = \[1.5\].*negative",
    ),
    (
        "beliefs of several shapes",
        lambda: pr.solve_many(STAY, [COIN, pr.Beta.uniform(2)], [pr.CVaR(0.9)], solver=SMALL),
        r"belief|shape",
    ),
    (
        "nothing to resume",
        lambda: pr.solve_many(STAY, [COIN], [pr.CVaR(0.9)], solver=SMALL, resume=[]),
        r"resume must hold one entry for each",
    ),
)


class LoopReached(Exception):
    """The optimisation loop was called."""


@pytest.fixture
def loop_out_of_bounds(monkeypatch):
    def loop(*args):
        raise LoopReached

    monkeypatch.setattr("prudent.solvers.brpg.one_iteration", loop)


@table(*SOLVE)
@pytest.mark.usefixtures("loop_out_of_bounds")
def test_solve_refuses_before_its_loop_is_reached(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@pytest.mark.usefixtures("loop_out_of_bounds")
@pytest.mark.parametrize(("model", "belief"), [(STAY, COIN), (TABULAR, DIRICHLET)], ids=["family", "tabular"])
def test_solve_reaches_its_loop_with_sound_input(model, belief):
    with pytest.raises(LoopReached):
        attempt(model, belief)


@pytest.mark.parametrize("solver", [None, SMALL], ids=["sample average", "stochastic"])
def test_a_risk_written_with_numpy_is_taken(solver):
    assert np.isfinite(pr.solve(STAY, COIN, risk=Plain(), solver=solver).risk)
