"""Environments with known kernels, each a function; to add one, write it and name it here."""

from collections.abc import Callable

from ...errors import InputError
from .environment import KnownEnvironment
from .grids import cliff, lake_4x4, lake_8x8, taxi
from .operations import epidemic, inventory, machines, queue_with_bursts, replacement
from .textbook import garnet, river_swim

#: Environments with known kernels: by name, the function that makes each.
KNOWN: dict[str, Callable[[], KnownEnvironment]] = {
    make.__name__: make
    for make in (
        epidemic,
        inventory,
        lake_4x4,
        lake_8x8,
        cliff,
        machines,
        queue_with_bursts,
        river_swim,
        replacement,
        garnet,
        taxi,
    )
}


def known_environment(name: str) -> KnownEnvironment:
    """One of the environments with a known kernel, by its name.

    >>> import prudent as pr
    >>> pr.envs.known_environment("cliff").shape
    (48, 4)
    """
    if name not in KNOWN:
        raise InputError(f"there is no environment {name!r}; there are {', '.join(KNOWN)}")
    return KNOWN[name]()


__all__ = ["KNOWN", "KnownEnvironment", "known_environment"]
