"""The command line. Parses, calls, prints; what a command needs is imported once it runs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from . import demo, runs, solve
from .plugins import Commands
from .terminal import clear_errors as clear_errors
from .terminal import console as console
from .terminal import keep_compiled

app = typer.Typer(
    cls=Commands,
    help="From a little data about a Markov decision process to a policy one can defend.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", envvar="PRUDENT_NO_CACHE", help="Keep no compiled code for the next command."),
    ] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("prudent"))
        raise typer.Exit
    if no_cache:
        os.environ["PRUDENT_NO_CACHE"] = "1"
    keep_compiled()


app.command()(solve.init)
app.command()(solve.check)
app.command()(solve.solve)
app.command()(runs.evaluate)
app.command()(runs.compare)
app.command("continue")(runs.continue_)
app.command()(runs.prove)
app.command()(runs.verify)
app.command()(runs.frontier)
app.command()(runs.worth)
app.command()(runs.report)
app.command()(demo.demo)
app.command()(demo.case)
