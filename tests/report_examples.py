"""Reports to test and to look at: a real machine, and made-up ones of any size and with any names."""

import numpy as np

import prudent as pr
from prudent.report import Difference, Driver, PlanView, ReportData

NASTY = "<script>window.pwned=1</script>"
NAMES = (NASTY, "<b>bold</b> & <i>it</i>", "\"quoted\" 'name'", "%{x} $x^2$ &lt;", "<a href='javascript:1'>a</a>")


def apart(risk, losses, others):
    """The risk of losses less that of others, draw by draw."""
    value, (low, high), error = risk(losses).value - risk(others).value, (0.0, 0.0), 0.0
    if losses is not others:
        resampled = np.random.default_rng(0).integers(len(losses), size=(200, len(losses)))
        error = float(np.std([risk(losses[k]).value - risk(others[k]).value for k in resampled]))
        low, high = value - 1.96 * error, value + 1.96 * error
    return Difference(float(value), error, float(low), float(high))


def plan_view(name, solution, model, level, ours=None):
    """A plan from a solution, its occupancy averaged over some of its draws."""
    evaluation = pr.CVaR(level)
    losses = np.asarray(solution.losses)
    thetas = np.asarray(solution.thetas)[:50]
    probabilities = np.asarray(solution.policy.probabilities)
    visits = np.mean([pr.occupancy(model.at(theta), probabilities) for theta in thetas], axis=0)
    return PlanView(
        name=name,
        risk=float(solution.risk),
        risk_standard_error=float(solution.risk_standard_error),
        mean=float(losses.mean()),
        mean_standard_error=float(losses.std(ddof=1) / losses.size**0.5),
        losses=losses,
        value_at_risk=float(np.quantile(losses, level, method="inverted_cdf")),
        tail_mean=float(evaluation(losses).value),
        probabilities=probabilities,
        occupancy=visits,
        kind="policy" if ours is None else "rival",
        difference=None if ours is None else apart(evaluation, losses, ours),
    )


def drivers_of(solution, names):
    """Every unknown under the plain posterior and under xi*, the largest shifts first."""
    thetas = np.asarray(solution.thetas).reshape(len(solution.losses), -1)
    weights = np.asarray(solution.weights) / np.sum(solution.weights)
    plain, spread, weighted = thetas.mean(axis=0), thetas.std(axis=0), weights @ thetas
    found = [
        Driver(name, float(plain[i]), float(weighted[i]), float((weighted[i] - plain[i]) / spread[i]), 0.095)
        for i, name in enumerate(names)
        if name is not None and spread[i] > 1e-12
    ]
    return tuple(sorted(found, key=lambda driver: -abs(driver.shift)))


def solved(model, belief, level, **shown):
    """A report of `solve` against the plug-in and the robust plan, all judged on the same draws."""
    risk = pr.CVaR(level)
    ours = pr.solve(
        model, belief, risk=risk, solver=pr.BRPG(iterations=shown.pop("iterations"), evaluation=1000), seed=0
    )
    rivals = {
        "posterior-mean plan": pr.plug_in(model, belief, risk=risk),
        "robust plan": pr.robust(model, belief, 0.1, risk=risk),
    }
    plans = [plan_view("this policy", ours, model, level)]
    plans += [plan_view(name, solution, model, level, plans[0].losses) for name, solution in rivals.items()]
    best = np.array(
        [pr.plan(model.at(theta)).values @ np.asarray(model.start) for theta in np.asarray(ours.thetas)[:300]]
    )
    known = risk(best)
    return ReportData(
        status=ours.status.name,
        status_message=ours.status.value,
        ok=ours.status.ok,
        risk_name=f"CVaR {level:g}",
        loss_name="expected discounted cost",
        tail_level=level,
        plans=tuple(plans),
        known_theta_risk=float(known.value),
        known_theta_standard_error=float(risk.standard_error(best)),
        lower_bound=None,
        history_objective=np.asarray(ours.history.objective),
        history_gradient_norm=np.asarray(ours.history.gradient_norm),
        drivers=drivers_of(ours, shown.pop("unknowns")),
        drivers_considered=ours.certificate.drivers_considered,
        weights=np.asarray(ours.weights),
        solver="brpg",
        seed=0,
        seconds=float(ours.seconds),
        iterations=len(ours.history),
        versions=(("prudent", "0.1.0"), ("numpy", np.__version__)),
        **shown,
    )


def machine_report(iterations=60):
    """A machine that wears, from a short log of transitions."""
    states, actions = ("new", "good", "worn", "failing", "broken"), ("run", "service", "replace")
    truth = np.zeros((5, 3, 5))
    for state in range(5):
        truth[state, 0] = np.eye(5)[4] if state == 4 else 0.7 * np.eye(5)[state] + 0.3 * np.eye(5)[state + 1]
        truth[state, 1] = np.eye(5)[4] if state == 4 else 0.8 * np.eye(5)[max(state - 1, 0)] + 0.2 * np.eye(5)[state]
        truth[state, 2] = np.eye(5)[0]
    cost = np.array([[0.0, 4.0, 10.0], [0.2, 4.0, 10.0], [1.0, 4.5, 10.0], [3.0, 6.0, 10.0], [60.0, 60.0, 42.0]])
    generator = np.random.default_rng(3)
    tried = [(0, 0, 14), (1, 0, 9), (1, 1, 3), (2, 0, 3), (2, 1, 4), (3, 0, 1), (3, 2, 3), (4, 2, 4)]
    records = [
        (state, action, int(generator.choice(5, p=truth[state, action])))
        for state, action, times in tried
        for _ in range(times)
    ]
    log = pr.Transitions.from_records(records, states=5, actions=3)
    support = pr.Support.lists([[[t for t in range(5) if truth[s, a, t] > 0] for a in range(3)] for s in range(5)])
    belief = pr.Dirichlet.symmetric(support, 1.0).update(log)
    counts = np.zeros((5, 3))
    for state, action, _ in records:
        counts[state, action] += 1
    successors = np.asarray(support.successor)
    unknowns = [
        f"{states[s]}, {actions[a]} → {states[successors[s, a, b]]}" if truth[s, a].max() < 1 else None
        for s in range(5)
        for a in range(3)
        for b in range(successors.shape[2])
    ]
    return solved(
        pr.TabularFamily(support, cost, start=0, discount=0.95),
        belief,
        0.9,
        iterations=iterations,
        title="Machine maintenance",
        asked=(
            ("problem file", "problem.toml"),
            ("states", "5: new, good, worn, failing, broken"),
            ("actions", "3: run, service, replace"),
            ("discount", "0.95"),
            ("risk", "CVaR 0.9"),
            ("loss", "expected discounted cost"),
            ("log", f"log.csv, {len(records)} rows"),
        ),
        states=states,
        actions=actions,
        grid=None,
        directions=None,
        unknowns=unknowns,
        counts=counts,
    )


def made_up(states, actions, plans=("this policy", "posterior-mean plan", "robust plan"), draws=400, **changes):
    """A report of made-up numbers: any names, any sizes."""
    random = np.random.default_rng(len(states) + 17 * len(actions))
    shape = (len(states), len(actions))
    views = []
    for position, name in enumerate(plans):
        losses = random.gamma(4.0, 1.0 + 0.3 * position, size=draws)
        tail = np.sort(losses)[int(0.9 * draws) :]
        probabilities = random.dirichlet(np.full(shape[1], 0.3), size=shape[0])
        visits = 20.0 * random.dirichlet(np.full(shape[0], 0.2))[:, None] * probabilities
        more = tail.mean() - views[0].risk if position else 0.0
        difference = Difference(more, 0.1, more - 0.2, more + 0.2) if position else None
        numbers = (tail.mean(), 0.1, losses.mean(), 0.05, losses, tail[0], tail.mean())
        views.append(PlanView(name, *numbers, probabilities, visits, difference=difference))
    pairs = [f"{state}, {action} → {state}" for state in states for action in actions][:30]
    settings = {
        "title": "Made up",
        "asked": (("problem file", "problem.toml"),),
        "status": "CONVERGED",
        "status_message": "the gradient norm fell to the tolerance",
        "ok": True,
        "risk_name": "CVaR 0.9",
        "loss_name": "expected discounted cost",
        "tail_level": 0.9,
        "states": tuple(states),
        "actions": tuple(actions),
        "grid": None,
        "directions": None,
        "plans": tuple(views),
        "known_theta_risk": 0.8 * views[0].risk,
        "known_theta_standard_error": 0.1,
        "lower_bound": 0.75 * views[0].risk,
        "gap": 0.25 * views[0].risk,
        "gap_limit": 0.25 * views[0].risk + 0.17,
        "history_objective": 10.0 + 5.0 * np.exp(-np.arange(200) / 30.0) + random.normal(size=200),
        "history_gradient_norm": np.exp(-np.arange(200) / 40.0),
        "drivers": tuple(Driver(name, 0.3, 0.3 + 0.01 * i, 1.5 - 0.1 * i, 0.1) for i, name in enumerate(pairs)),
        "drivers_considered": 40,
        "counts": random.poisson(4.0, size=shape).astype(float),
        "seed": 11,
        "seconds": 12.25,
        "iterations": 200,
        "versions": (("prudent", "0.1.0"),),
    }
    return ReportData(**{**settings, **changes})


def nasty_report(**changes):
    """Names that would run, break or hide something if they were not escaped."""
    settings = {
        "plans": ("this policy", "<img src=x onerror='window.pwned=3'>", "robust plan"),
        "title": "<script>window.pwned=4</script>",
        "asked": (("<u>log</u>", "</dd><script>window.pwned=5</script>"), ("seed", "1\u202e2\x00\ud800")),
        "loss_name": "cost <i>per year</i>",
        "risk_name": "CVaR <sub>0.9</sub>",
        # Every name is on the page: each of these pairs has few rows.
        "counts": np.ones((len(NAMES), 3)),
    }
    actions = ("<b>go</b>", "</script><script>window.pwned=2</script>", "stay & wait")
    return made_up(NAMES, actions, **{**settings, **changes})


def large_report():
    """Hundreds of states, many actions, long names, a long run."""
    return made_up(
        [f"state number {i} of a rather long list of states" for i in range(500)],
        [f"action {i}" for i in range(30)],
        history_objective=5.0 + np.exp(-np.arange(40_000) / 3000.0),
        history_gradient_norm=np.exp(-np.arange(40_000) / 5000.0),
        iterations=40_000,
    )
