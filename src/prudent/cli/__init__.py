"""The command line. Parses, calls, prints; jax is imported only once a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from . import demo, reproduce, runs, solve, studies

app = typer.Typer(
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
app.command()(runs.report)
app.command()(demo.demo)
app.command()(reproduce.reproduce)
app.command()(studies.estimators)
app.command()(studies.families)
app.command()(studies.gymnasium)
app.command()(studies.optimisers)
app.command()(studies.worth)
app.command()(studies.promise)
