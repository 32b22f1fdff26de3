"""Linear systems on the page: gains with their units, eigenvalues of closed loops, responses with bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .drawing import scatter
from .page import NEUTRAL, axis, blank, faded, figure_html, plan_colour
from .parts import Array, Part, Several, Table, Two
from .words import figure_text, number

# Pixels of a figure of a response, and of the plane of eigenvalues.
LOW, SQUARE = 190, 420

# Draws whose closed loops are drawn, steps of a response at most, and the part of its start at which one ends.
DRAWN, STEPS, SETTLED = 400, 120, 0.01


class LinearRecord(Part):
    """What a run of a linear system says beside its risk.

    >>> import numpy as np
    >>> from prudent.report import LinearRecord
    >>> bands = np.zeros((3, 2, 2))
    >>> LinearRecord(states=("x",), actions=("u",), units=("m", "N"), discount=0.9, gain=np.array([[-0.5]]),
    ...              bias=np.zeros(1), real=np.zeros((4, 1)), imaginary=np.zeros((4, 1)), responses=bands).names
    ('x', 'u')

    Attributes:
        states, actions: names.
        units: of states, then of actions; empty where none is said.
        discount: gamma.
        gain, bias: of the answer, `[m, n]` and `[m]`.
        plug_in, plug_in_bias: those of certainty equivalence; None where the log has none.
        said: label and text of what is said of stability, of what was cut off, and of rivals without a finite risk.
        real, imaginary: `[M, n]` eigenvalues of `A + B K` at draws.
        responses: `[3, T, n + m]` quantiles 5 %, 50 % and 95 % over draws, of what states and actions are from the mean
            start on, without noise.
        others: `[T, n + m]` medians of certainty equivalence; None without one.
    """

    states: Several[str]
    actions: Several[str]
    units: Several[str]
    discount: float
    gain: Array
    bias: Array
    plug_in: Table = None
    plug_in_bias: Table = None
    said: Several[Two[str]] = ()
    real: Array
    imaginary: Array
    responses: Array
    others: Table = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of states, then of actions."""
        return (*self.states, *self.actions)

    def model_post_init(self, context: Any) -> None:
        """Refuse arrays that do not belong together."""
        del context
        n, m = len(self.states), len(self.actions)
        steps = self.responses.shape[1] if self.responses.ndim == 3 else 0
        shapes = {
            "gain": (self.gain.shape, (m, n)),
            "bias": (self.bias.shape, (m,)),
            "units": ((len(self.units),), (n + m,)),
            "imaginary": (self.imaginary.shape, self.real.shape),
            "real": (self.real.shape[1:], (n,)),
            "responses": (self.responses.shape, (3, steps, n + m)),
        }
        given = {"plug_in": (self.plug_in, (m, n)), "plug_in_bias": (self.plug_in_bias, (m,))}
        given["others"] = (self.others, (steps, n + m))
        shapes |= {name: (table.shape, shape) for name, (table, shape) in given.items() if table is not None}
        for name, (found, wanted) in shapes.items():
            if found != wanted:
                raise InputError(f"the record's {name} must have shape {wanted}, got {found}")


def linear_fields(case: Any, solution: Any, plug_in: Any, infinite: Sequence[str]) -> dict[str, Any]:
    """What a problem of a linear system tells of a run: gain, eigenvalues and responses at the first draws.

    Args:
        case: a `LinearCase`.
        solution: of `solve`.
        plug_in: the policy of certainty equivalence; None without one.
        infinite: names of the rivals whose loss is infinite at some draw.
    """
    n, m, policy, family = len(case.states), len(case.actions), solution.policy, case.family()
    thetas = np.asarray(solution.thetas)[:DRAWN]
    matrices, drives = thetas[:, :, :n], thetas[:, :, n : n + m]
    values = np.linalg.eigvals(matrices + drives @ np.asarray(policy.gain))
    first = np.asarray(family.start_mean)
    first = first if np.any(first) else np.sqrt(np.maximum(np.diag(np.asarray(family.start_covariance)), 0.0))
    first = first if np.any(first) else np.ones(n)
    bands = np.quantile(_walked(policy, matrices, drives, first), [0.05, 0.5, 0.95], axis=0)
    middle = np.abs(bands[1])
    settled = middle.max(axis=1) > SETTLED * middle[0].max()
    steps = min(STEPS, max(10, int(np.flatnonzero(settled)[-1]) + 2))
    others = None if plug_in is None else np.median(_walked(plug_in, matrices, drives, first), axis=0)[:steps]
    lost = [(name, "unstable at some of these draws, so that its risk is infinite there") for name in infinite]
    record = LinearRecord.of(
        policy,
        states=case.states,
        actions=case.actions,
        units=tuple(case.unit(name) for name in case.names),
        discount=case.file.discount,
        plug_in=None if plug_in is None else np.asarray(plug_in.gain),
        plug_in_bias=None if plug_in is None else np.asarray(plug_in.bias),
        said=(*solution.evaluation.notes.rows(), *lost),
        real=values.real,
        imaginary=values.imag,
        responses=bands[:, :steps],
        others=others if others is not None and np.all(np.isfinite(others)) else None,
    )
    # Of a gain nothing but its gradient tells that it has converged.
    return {"linear": record, "solved": solution.status.name in ("CONVERGED", "GRADIENT_VANISHED", "PLAN_KEPT")}


def _walked(policy: Any, matrices: np.ndarray, drives: np.ndarray, first: np.ndarray) -> np.ndarray:
    """`[M, T, n + m]` states and actions without noise."""
    gain, bias = np.asarray(policy.gain), np.asarray(policy.bias)
    states, rows = np.broadcast_to(first, (len(matrices), len(first))), []
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(STEPS):
            actions = states @ gain.T + bias
            rows.append(np.concatenate([states, actions], axis=1))
            states = np.einsum("kij,kj->ki", matrices, states) + np.einsum("kij,kj->ki", drives, actions)
    return np.stack(rows, axis=1)


def gain_rows(record: LinearRecord) -> list[tuple[str, str, list[str]]]:
    """Rows of the table of gains: what is told, the action, and numbers with their units, the bias last."""
    rows = []
    tables = [("this policy", record.gain, record.bias)]
    if record.plug_in is not None and record.plug_in_bias is not None:
        tables.append(("certainty equivalence", record.plug_in, record.plug_in_bias))
    for name, gain, bias in tables:
        for k, action in enumerate(record.actions):
            own = record.units[len(record.states) + k]
            cells = [f"{number(v)}{_per(own, record.units[j])}" for j, v in enumerate(gain[k])]
            rows.append((name, action, [*cells, f"{number(bias[k])}{own and ' ' + own}"]))
    return rows


def _per(unit: str, by: str) -> str:
    """`N / (m/s)`, as far as units are said."""
    if not unit and not by:
        return ""
    below = f"({by})" if "/" in by or " " in by else by
    return f" {unit or '1'}" + (f" / {below}" if by else "")


def linear_figures(record: LinearRecord | None) -> dict[str, Any]:
    """The figures as HTML; None where the run is not of a linear system."""
    if record is None:
        return {"eigenvalues": None, "responses": []}
    drawn = []
    for k, (name, unit) in enumerate(zip(record.names, record.units, strict=True)):
        label = f"{name} ({unit})" if unit else name
        drawn.append((label, figure_html(_response(record, k), f"{name} over time, with a band over the belief")))
    plane = figure_html(_plane(record), "eigenvalues of the closed loop over the belief", aspect=1.0, widest=SQUARE)
    return {"eigenvalues": plane, "responses": drawn}


def _plane(record: LinearRecord) -> Any:
    figure = blank(None, top=12)
    angles = np.linspace(0.0, 2.0 * np.pi, 121)
    edge = 1.0 / np.sqrt(record.discount) if record.discount > 0 else np.inf
    circles = [(1.0, "solid", "states shrink inside")]
    circles += [(edge, "dot", "the loss is finite inside")] if np.isfinite(edge) and edge < 4.0 else []
    for radius, dash, said in circles:
        figure.add_line(radius * np.cos(angles), radius * np.sin(angles), NEUTRAL, said, width=1.5, dash=dash)
    dots = {"mode": "markers", "marker": {"color": faded(plan_colour(0), 0.35), "size": 5}}
    told = "%{x:.3f} %{y:+.3f} i<extra></extra>"
    figure.add_trace(scatter(x=record.real.ravel(), y=record.imaginary.ravel(), **dots, hovertemplate=told))
    most = 1.08 * max(1.0, *(radius for radius, _, _ in circles), float(np.hypot(record.real, record.imaginary).max()))
    figure.update_layout(xaxis=axis("real part", range=[-most, most], zeroline=True, zerolinecolor=faded(NEUTRAL, 0.4)))
    figure.update_layout(yaxis=axis("imaginary part", range=[-most, most], scaleanchor="x"))
    return figure


def _response(record: LinearRecord, place: int) -> Any:
    figure = blank(LOW)
    low, middle, high = record.responses[:, :, place]
    steps = np.arange(len(middle))
    colour = plan_colour(0)
    line = {"mode": "lines", "hoverinfo": "skip"}
    figure.add_trace(scatter(x=steps, y=low, line={"width": 0}, **line))
    figure.add_trace(scatter(x=steps, y=high, line={"width": 0}, fill="tonexty", fillcolor=faded(colour, 0.25), **line))
    hover = "step %{x}: %{y:.4g}<extra>" + figure_text(record.names[place]) + "</extra>"
    figure.add_trace(scatter(x=steps, y=middle, mode="lines", line={"color": colour}, hovertemplate=hover))
    if record.others is not None:
        dashed = {"color": plan_colour(1), "dash": "dash"}
        figure.add_trace(scatter(x=steps, y=record.others[:, place], line=dashed, **line))
    figure.update_layout(xaxis=axis("step"))
    return figure
