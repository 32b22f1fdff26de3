"""Stage 16: records to figures; nothing is computed here that a record does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise InputError("plots need matplotlib; install it with: pip install 'prudent[report]'") from None
    matplotlib.use("agg", force=False)
    from matplotlib import pyplot

    return pyplot


def loss_distributions(
    losses: Mapping[str, np.ndarray],
    path: str | Path | None = None,
    *,
    marks: Mapping[str, Mapping[str, float]] | None = None,
    title: str = "Loss over the posterior",
    label: str = "expected discounted cost",
) -> Any:
    """One panel a policy: the histogram of its loss over the same posterior draws.

    Args:
        losses: `[M]` losses by policy name.
        path: where to write a PNG; the figure is returned either way.
        marks: by policy name, values to mark by a line, such as its mean and CVaR.
        title: above the panels.
        label: what a loss is, with its unit.
    """
    pyplot = _pyplot()
    values = np.concatenate([np.asarray(column) for column in losses.values()])
    edges = np.linspace(values.min(), np.quantile(values, 0.999), 60)
    figure, panels = pyplot.subplots(
        len(losses),
        1,
        figsize=(7.5, 1.0 + 1.55 * len(losses)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    styles = ("-", "--", ":")
    for panel, (name, column) in zip(panels[:, 0], losses.items(), strict=True):
        column = np.clip(np.asarray(column), edges[0], edges[-1])
        panel.hist(column, bins=edges.tolist(), weights=np.full(column.size, 100.0 / column.size), color="#7a9cc6")
        for style, (mark, value) in zip(styles, (marks or {}).get(name, {}).items(), strict=False):
            panel.axvline(value, color="#b03a2e", linestyle=style, linewidth=1.4, label=f"{mark} {value:.2f}")
        panel.set_title(name, loc="left", fontsize=10)
        panel.set_ylabel("% of draws")
        panel.spines[["top", "right"]].set_visible(False)
        if marks and name in marks:
            panel.legend(frameon=False, fontsize=9, loc="upper right")
    panels[-1, 0].set_xlabel(label)
    figure.suptitle(title, fontsize=11)
    if path is not None:
        _write(figure, Path(path))
        pyplot.close(figure)
    return figure


def _write(figure: Any, path: Path) -> None:
    """Write a PNG whole or not at all: to a neighbour first, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    figure.savefig(partial, dpi=150, format="png")
    partial.replace(path)
