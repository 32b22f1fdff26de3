"""Environments with known kernels, each a small file; to add one, write a file and name its function here."""

from collections.abc import Callable

from ...errors import InputError
from .cliff import cliff
from .environment import KnownEnvironment
from .epidemic import epidemic
from .garnet import garnet
from .inventory import inventory
from .lakes import lake_4x4, lake_8x8
from .machines import machines
from .queue_with_bursts import queue_with_bursts
from .replacement import replacement
from .river_swim import river_swim
from .taxi import taxi

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
