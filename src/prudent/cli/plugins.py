"""Commands that other packages bring.

A package offers a command, a function as typer takes it, in its own `pyproject.toml`:

    [project.entry-points."prudent.commands"]
    reproduce = "prudent_studies.commands:reproduce"

Only what is asked for is imported: one command when it runs, all of them for `prudent --help`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from .terminal import refuse

GROUP = "prudent.commands"

# What an installation without them says when it is asked for them.
STUDIES = (
    "cart-pole",
    "estimators",
    "families",
    "fit",
    "gymnasium",
    "limits",
    "linear",
    "optimisers",
    "pendulum",
    "promise",
    "proofs",
    "reproduce",
    "spi",
    "worth-study",
)


class Commands(TyperGroup):
    """The commands of the library, then those of other packages, which cannot take the place of the former."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        own = super().list_commands(ctx)
        return own + sorted(name for name in _offered() if name not in own)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None if nobody has heard of it."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        offer = _offered().get(cmd_name)
        if offer is not None:
            return _loaded(cmd_name, offer)
        if cmd_name in STUDIES:
            return _refusing(
                cmd_name,
                f"`prudent {cmd_name}` comes with prudent-studies; install it from a clone of the repository: "
                "pip install ./studies",
            )
        return None


@functools.cache
def _offered() -> dict[str, Any]:
    """The entry points by name; reading them imports none of the packages."""
    from importlib.metadata import entry_points

    return {offer.name: offer for offer in entry_points(group=GROUP)}


def _loaded(name: str, offer: Any) -> Any:
    """The command of an entry point; one that cannot be imported says so, and leaves the others alone."""
    try:
        return _command(name, offer.load())
    except Exception as error:
        # Whatever a package does when it is imported: the message is for its user, who may not be its author.
        package = offer.dist.name if offer.dist is not None else offer.module
        return _refusing(
            name, f"`prudent {name}` of the package {package} cannot be loaded: {type(error).__name__}: {error}"
        )


def _refusing(name: str, message: str) -> Any:
    """A command that only says why it cannot run, whatever follows its name."""

    def refusal(ctx: typer.Context) -> None:
        refuse(message)

    return _command(
        name,
        refusal,
        help=message,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )


def _command(name: str, function: Callable[..., Any], **settings: Any) -> Any:
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, **settings)(function)
    return typer.main.get_command(single)
