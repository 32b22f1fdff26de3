"""The command line. Parses, calls, prints; jax is imported only once a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from . import demo, runs, solve
from .plugins import Commands
from .terminal import clear_errors as clear_errors
from .terminal import console as console

app = typer.Typer(
    cls=Commands,
    help="From a little data about a Markov decision process to a policy one can defend.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("prudent"))
        raise typer.Exit


app.command()(solve.init)
app.command()(solve.check)
app.command()(solve.solve)
app.command()(runs.evaluate)
app.command()(runs.compare)
app.command("continue")(runs.continue_)
app.command()(runs.prove)
app.command()(runs.verify)
app.command()(runs.report)
app.command()(demo.demo)
