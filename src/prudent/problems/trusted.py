"""A model of the user's own, named in a problem file: code that runs only if the user said it may."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..models import AbstractFamily
from ..posteriors import Posterior
from ..transitions import Transitions


class Trusted(NamedTuple):
    """What the user's function made.

    Attributes:
        name: `module:function`.
        model: the family of MDPs.
        prior: the posterior before the log.
    """

    name: str
    model: AbstractFamily
    prior: Posterior

    def after(self, log: Transitions | None) -> Posterior:
        """The belief after a log."""
        update = getattr(self.prior, "update", None)
        if log is None:
            return self.prior
        if update is None:
            raise InputError(f"the prior of family {self.name!r} has no update(log), and there is a log")
        return update(log)


def import_family(name: str, options: dict[str, Any], folder: Path, trust: bool) -> Trusted:
    """Call `module:function(**options)`; modules in the problem file's folder are found first.

    The function gives a family and a prior, `(family, prior)`, or a family with an attribute `prior`.
    """
    if not trust:
        raise InputError(
            f"the problem file names the code {name!r}; it is imported and run only with --trust "
            "(in Python: read_problem(path, trust=True)), so look at it first"
        )
    module_name, function_name = name.split(":")
    sys.path.insert(0, str(folder))
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        made = function(**options)
    except Exception as error:
        raise InputError(
            f"family {name!r} failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        ) from None
    finally:
        sys.path.remove(str(folder))
    model, prior = made if isinstance(made, tuple) and len(made) == 2 else (made, getattr(made, "prior", None))
    if not isinstance(model, AbstractFamily) or not isinstance(prior, Posterior):
        raise InputError(
            f"family {name!r} must give a family and its prior, (family, prior), or a family with a prior; "
            f"it gave {type(model).__name__} and {type(prior).__name__}"
        )
    return Trusted(name, model, prior)
