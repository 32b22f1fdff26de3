"""Histograms of losses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .canvas import finish, pyplot


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
    values = np.concatenate([np.asarray(column) for column in losses.values()])
    marked = [value for lines in (marks or {}).values() for value in lines.values()]
    right = max(np.quantile(values, 0.995), *marked, values.min() + 1e-9)
    edges = np.linspace(values.min(), right, 60)
    figure, panels = pyplot().subplots(
        len(losses), 1, figsize=(8.0, 1.2 + 1.6 * len(losses)), sharex=True, squeeze=False, layout="constrained"
    )
    for panel, (name, column) in zip(panels[:, 0], losses.items(), strict=True):
        column = np.asarray(column)
        panel.hist(column, bins=edges.tolist(), weights=np.full(column.size, 100.0 / column.size), color="#7a9cc6")
        lines = (marks or {}).get(name, {})
        for style, (mark, value) in zip(("-", "--", ":"), lines.items(), strict=False):
            panel.axvline(value, color="#b03a2e", linestyle=style, linewidth=1.4, label=f"{mark} {value:.2f}")
        beyond = 100.0 * float((column > right).mean())
        panel.set_title(
            name + (f"  ({beyond:.1f} % of draws lie further right)" if beyond else ""), loc="left", fontsize=10
        )
        panel.set_ylabel("% of draws")
        panel.spines[["top", "right"]].set_visible(False)
        if lines:
            # Beside the panel, where no bar or line can run through it.
            panel.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    panels[-1, 0].set_xlabel(label)
    figure.suptitle(title, fontsize=11)
    return finish(figure, path)
