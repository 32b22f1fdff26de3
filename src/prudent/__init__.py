"""prudent: from a little data about a Markov decision process to a policy one can defend."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
