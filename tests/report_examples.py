"""Records to test and to look at: a real machine, and made-up ones of any size and with any names."""

import html.parser
import json

import numpy as np

import prudent as pr
from prudent.report import CertificateRecord, Difference, DriverRecord, PolicyRecord, SolutionRecord
from prudent.report.page import plotly_script
from prudent.report.parts import coverage_record

NASTY = "<script>window.pwned=1</script>"
NAMES = (NASTY, "<b>bold</b> & <i>it</i>", "\"quoted\" 'name'", "%{x} $x^2$ &lt;", "<a href='javascript:1'>a</a>")


def changed(record, **changes):
    """The record with other values, checked again."""
    return type(record)(**dict(record) | changes)


def apart(value, error, low, high, **more):
    """A difference of two risks."""
    return Difference(value=value, standard_error=error, low=low, high=high, **more)


def certificate(**changes):
    """A certificate on all draws."""
    usual = {"draws": 400, "exact": False, "no_bound_because": None, "gap_confidence": "95 %", "in_sample": 9.0}
    return CertificateRecord(**usual | {"stationarity": 0.01, "drivers_considered": 40} | changes)


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
    model, risk = pr.TabularFamily(support, cost, start=0, discount=0.95), pr.CVaR(0.9)
    solution = pr.solve(model, belief, risk=risk, solver=pr.BRPG(iterations=iterations, evaluation=1000))
    rivals = {
        "posterior-mean plan": pr.plug_in(model, belief, risk=risk),
        "robust plan": pr.robust(model, belief, 0.1, risk=risk),
    }
    shown = {"title": "Machine maintenance", "risk_name": "CVaR 0.9", "loss_name": "expected discounted cost"}
    shown |= {"states": states, "actions": actions, "counts": counts, "solver": "brpg"}
    shown["asked"] = (
        ("problem file", "problem.toml"),
        ("states", "5: new, good, worn, failing, broken"),
        ("actions", "3: run, service, replace"),
        ("discount", "0.95"),
        ("risk", "CVaR 0.9"),
        ("loss", "expected discounted cost"),
        ("log", f"log.csv, {len(records)} rows"),
    )
    record = pr.record_solution(solution, model, belief, risk=risk, rivals=rivals, **shown)
    return changed(
        record, coverage=coverage_record(counts, truth.max(axis=2) == 1, record.occupancy, states, actions, 5)
    )


def made_up(states, actions, plans=("this policy", "posterior-mean plan", "robust plan"), draws=400, **changes):
    """A record of made-up numbers: any names, any sizes."""
    random = np.random.default_rng(len(states) + 17 * len(actions))
    shape = (len(states), len(actions))
    judged = []
    for position, name in enumerate(plans):
        losses = random.gamma(4.0, 1.0 + 0.3 * position, size=draws)
        tail = np.sort(losses)[int(0.9 * draws) :]
        probabilities = random.dirichlet(np.full(shape[1], 0.3), size=shape[0])
        visits = 20.0 * random.dirichlet(np.full(shape[0], 0.2))[:, None] * probabilities
        more = tail.mean() - judged[0].risk if position else 0.0
        judged.append(
            PolicyRecord(
                name=name,
                kind="rival" if position else "policy",
                status="PLANNED" if position else "CONVERGED",
                draws=draws,
                risk=tail.mean(),
                risk_standard_error=0.1,
                interval=(tail.mean() - 0.2, tail.mean() + 0.2),
                mean=losses.mean(),
                mean_standard_error=0.05,
                tail_level=0.9,
                value_at_risk=tail[0],
                tail_mean=tail.mean(),
                difference=apart(more, 0.1, more - 0.2, more + 0.2) if position else None,
                losses=losses,
                weights=np.where(losses >= tail[0], draws / len(tail), 0.0),
                probabilities=probabilities,
                occupancy=visits,
            )
        )
    ours, counts = judged[0], random.poisson(4.0, size=shape).astype(float)
    pairs = [f"{state}, {action} → {state}" for state in states for action in actions][:30]
    values = dict(ours) | {
        "title": "Made up",
        "asked": (("problem file", "problem.toml"),),
        "message": "the gradient norm fell to the tolerance",
        "solved": True,
        "usable": True,
        "risk_name": "CVaR 0.9",
        "loss_name": "expected discounted cost",
        "states": tuple(states),
        "actions": tuple(actions),
        "rivals": tuple(judged[1:]),
        "known_theta_risk": 0.8 * ours.risk,
        "known_theta_risk_standard_error": 0.1,
        "lower_bound": 0.75 * ours.risk,
        "gap": 0.25 * ours.risk,
        "gap_limit": 0.25 * ours.risk + 0.17,
        "certificate": certificate(draws=draws),
        "objective": 10.0 + 5.0 * np.exp(-np.arange(200) / 30.0) + random.normal(size=200),
        "gradient_norm": np.exp(-np.arange(200) / 40.0),
        "drivers": tuple(
            DriverRecord(name=name, plain=0.3, weighted=0.3 + 0.01 * i, shift=1.5 - 0.1 * i, standard_error=0.1)
            for i, name in enumerate(pairs)
        ),
        "counts": counts,
        "draw_probabilities": np.full(draws, 1.0 / draws),
        "seed": 11,
        "seconds": 12.25,
        "iterations": 200,
        "versions": {"prudent": "0.1.0"},
        **changes,
    }
    if values["counts"] is not None:
        certain = values.pop("certain", np.zeros(shape, bool))
        known = values["counts"], certain, values["occupancy"], values["states"], values["actions"], 5
        values["coverage"] = coverage_record(*known)
    return SolutionRecord(**values)


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
        objective=5.0 + np.exp(-np.arange(40_000) / 3000.0),
        gradient_norm=np.exp(-np.arange(40_000) / 5000.0),
        iterations=40_000,
    )


class Page(html.parser.HTMLParser):
    """Elements, texts and figures of a page, as a browser would split it."""

    VOID = ("meta", "link", "br", "img", "hr", "input")

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.tags, self.values, self.figures, self.texts, self.scripts = [], [], [], [], [], 0
        # Parsing five megabytes of library a hundred times takes long, and tells nothing.
        self.feed(text.replace(str(plotly_script()), "<script></script>"))
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in self.VOID:
            self.stack.append((tag, attributes))
        if "data-name" in attributes:
            self.values.append([attributes["data-name"], attributes["data-value"], ""])
        if tag == "script" and attributes.get("type") != "application/json":
            self.scripts += 1

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag

    def handle_data(self, text):
        tag, attributes = self.stack[-1] if self.stack else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.figures.append(json.loads(text))
        elif tag not in ("script", "style"):
            self.texts.append(text)
            if "data-name" in attributes:
                self.values[-1][2] += text

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def drawn(figure):
    """A figure, or its JSON, as plotly reads it, which refuses what it does not know."""
    from plotly import graph_objects

    return graph_objects.Figure(figure if isinstance(figure, dict) else json.loads(figure.to_json()))
