"""The one exception prudent raises for bad input."""

import difflib
import functools
import inspect
from typing import Any, TypeVar, cast

Part = TypeVar("Part")


class InputError(ValueError):
    """Bad input: the message says what was received, where, and what to do about it.

    >>> import prudent as pr
    >>> try:
    ...     pr.CVaR(1.5)
    ... except pr.InputError as error:
    ...     print(error)
    CVaR level must lie in [0, 1), got 1.5; use WorstCase() for the limit 1.
    """


# What other libraries call things, and what they are called here.
SYNONYMS = {
    "alpha": ("level",),
    "beta": ("level",),
    "confidence": ("level",),
    "costs": ("cost",),
    "cost": ("loss",),
    "reward": ("cost",),
    "rewards": ("cost",),
    "gamma": ("discount",),
    "initial": ("start",),
    "init": ("start",),
    "lr": ("step",),
    "learning_rate": ("step",),
    "max_iter": ("iterations",),
    "n_iter": ("iterations",),
    "n_samples": ("samples", "evaluation"),
    "n_episodes": ("episodes",),
    "optimiser": ("solver",),
    "optimizer": ("solver",),
    "method": ("solver",),
    "posterior": ("belief", "prior"),
    "prior": ("belief",),
    "family": ("model",),
    "mdp": ("model",),
    "random_state": ("seed",),
    "rng": ("seed",),
    "key": ("seed",),
    "risk_measure": ("risk",),
    "tol": ("tolerance",),
    "verbose": ("progress",),
    "callback": ("progress",),
    "callbacks": ("progress",),
    "logger": ("progress",),
}


def _near(name: str, known: list[str]) -> str:
    meant = next((word for word in SYNONYMS.get(name, ()) if word in known), None)
    near = [meant] if meant else difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    minus = " (a cost is a negative reward)" if meant == "cost" and name.startswith("reward") else ""
    return f"; did you mean {near[0]}=?{minus}" if near else f"; there are {', '.join(f'{word}=' for word in known)}"


def _refuse_unknown(name: str, signature: inspect.Signature, given: dict[str, Any]) -> None:
    known = [
        each.name
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    for word in given:
        if word not in known:
            raise InputError(f"{name} has no argument {word}={_near(word, [each for each in known if each != 'self'])}")


def hinted(part: Part) -> Part:
    """A function or a class that answers an argument it does not have with the name it may go by here.

    >>> import prudent as pr
    >>> try:
    ...     pr.CVaR(alpha=0.9)
    ... except pr.InputError as error:
    ...     print(error)
    CVaR has no argument alpha=; did you mean level=?
    """
    if isinstance(part, type):
        init, signature = part.__init__, inspect.signature(part.__init__)

        @functools.wraps(init)
        def made(self: Any, *args: Any, **kwargs: Any) -> None:
            _refuse_unknown(type(self).__name__, signature, kwargs)
            init(self, *args, **kwargs)

        part.__init__ = made
        return part
    function: Any = part
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        _refuse_unknown(function.__name__, signature, kwargs)
        return function(*args, **kwargs)

    return cast(Part, called)
