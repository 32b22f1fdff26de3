"""Problem files: their keys, the tables they name, and the objects `solve` takes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
