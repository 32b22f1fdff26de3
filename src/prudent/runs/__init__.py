"""A problem solved into a folder, and what can be done with the folder afterwards."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
