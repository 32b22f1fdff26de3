"""JAX and equinox, imported when something of theirs is first used, and float64 from then on.

Importing them takes as long as solving a small problem, for which nothing is compiled. So modules take their names from
here, and whoever asks one of them for an attribute imports what is behind it.

JAX computes in float64 only where `jax_enable_x64` is on. That flag belongs to the user, so every public call runs in
`jax.enable_x64(True)`, a context of one thread: from its beginning where JAX is there, else from when that thread
imports it, or takes something of it from here after another thread did.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import wrapt

Function = TypeVar("Function", bound=Callable[..., Any])

_waiting: list[Callable[[], None]] = []
_there = threading.Event()


class _Thread(threading.local):
    """The calls of a thread that began before JAX was there, the outermost first."""

    def __init__(self) -> None:
        self.calls: list[contextlib.ExitStack] = []


_thread = _Thread()


def loaded() -> bool:
    """Whether JAX is imported; without it no array is its own."""
    return _there.is_set()


def when_loaded(function: Callable[[], None]) -> None:
    """Call a function once JAX is imported: now, if it is."""
    function() if loaded() else _waiting.append(function)


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """Have JAX compute in float64, in this thread, and leave the caller's flag as it was."""
    if loaded():
        with jax.enable_x64(True):
            yield
        return
    with contextlib.ExitStack() as call:
        _thread.calls.append(call)
        try:
            yield
        finally:
            if call in _thread.calls:
                _thread.calls.remove(call)


def _enter_float64() -> None:
    calls, _thread.calls = _thread.calls, []
    for call in calls:
        call.enter_context(importlib.import_module("jax").enable_x64(True))


def _came(module: Any) -> None:
    """Do what waits for JAX; a class that is made in another thread meanwhile may still join those who wait."""
    while _waiting:
        _waiting.pop(0)()
    _there.set()
    while _waiting:
        _waiting.pop(0)()
    _enter_float64()


# Whoever imports JAX, which may be the user; at once if it is there.
wrapt.register_post_import_hook(_came, "jax")


class _Deferred:
    """A module that is imported when an attribute of it is asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if loaded() and not _thread.calls and self._name in sys.modules:
            return getattr(sys.modules[self._name], attribute)
        # It waits for another thread that imports it; the import of a submodule would go on with a half-made package.
        importlib.import_module("jax")
        module = importlib.import_module(self._name)
        # Another thread may have imported it while a call of this one was under way.
        if _thread.calls:
            _enter_float64()
        return getattr(module, attribute)


if TYPE_CHECKING:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from jax import flatten_util, lax
else:
    eqx, jax, jnp, lax, flatten_util = map(_Deferred, ("equinox", "jax", "jax.numpy", "jax.lax", "jax.flatten_util"))


def when_called(make: Callable[[], Function]) -> Function:
    """A function that is made when it is first called, for what JAX or equinox make of others."""
    made = functools.cache(make)

    def call(*args: Any, **kwargs: Any) -> Any:
        return made()(*args, **kwargs)

    call.made = made  # pyright: ignore[reportFunctionMemberAccess]
    return cast(Function, call)


def jitted(function: Function) -> Function:
    """`equinox.filter_jit`, when the function is first called."""
    return cast(Function, functools.wraps(function)(when_called(lambda: eqx.filter_jit(function))))
