"""The commands of the studies of simulated models; each imports its study, and with it JAX, only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prudent.cli import clear_errors, console

from .commands import empty_table

Seed = Annotated[int, typer.Option(help="Of the log, the draws and the tests.", min=0)]
Worlds = Annotated[int, typer.Option(help="Drawn from the belief.", min=10)]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The picture; in the working folder when left out.")]


def pendulum(seed: Seed = 0, worlds: Worlds = 1000, out: Out = None) -> None:
    """Gymnasium's pendulum, its mass, length and friction learned from a short log; some minutes.

    Example: prudent pendulum --out pendulum.png
    """
    _study("pendulum", seed, worlds, out or Path("pendulum.png"))


def cart_pole(seed: Seed = 0, worlds: Worlds = 1000, out: Out = None) -> None:
    """Gymnasium's cart-pole, its masses and length learned from a short log; some minutes.

    Example: prudent cart-pole --out cart-pole.png
    """
    _study("cart-pole", seed, worlds, out or Path("cart-pole.png"))


def _study(name: str, seed: int, worlds: int, out: Path) -> None:
    with clear_errors():
        from rich.console import Console

        from . import simulated as study

        with Console(stderr=True).status("learning, solving and trying out"):
            found = study.run(name, seed, worlds)
            study.draw(found, out)
        setting, (mean, spread, behind) = found.setting, found.belief
        terminal = console()
        known = ", ".join(
            f"{label} {m:.3g} ± {s:.2g} (truth {t:g})"
            for label, m, s, t in zip(setting.constants, mean, spread, setting.truth, strict=True)
        )
        terminal.print(f"belief after {found.rows} transitions, {behind:.0f} effective draws: {known}", soft_wrap=True)
        table = empty_table(
            f"Discounted cost in {worlds} {setting.name} worlds of the belief, {study.EPISODES} episodes each",
            ["policy", "mean", "worst tenth", "mean less plug-in's", "worst tenth less plug-in's", "falls", "stated"],
            words=["policy"],
        )
        plain = found.tried[-1]
        for one in found.tried:
            apart = [study.difference(one.costs, plain.costs, of) for of in (lambda c: float(c.mean()), study.tail_of)]
            risk, by_draws, by_particles = one.stated
            table.add_row(
                one.name,
                f"{one.mean:.3f}",
                f"{one.tail:.3f}",
                *("–" if one is plain else f"{value:+.3f} ± {error:.3f}" for value, error in apart),
                f"{one.fallen:.1%}",
                f"{risk:.3f} ± {by_draws:.3f} (draws) ± {by_particles:.3f} (particles)",
            )
        terminal.print(table)
        terminal.print(f"wrote {out}")
