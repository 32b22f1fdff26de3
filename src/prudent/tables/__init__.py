"""Tables from files, frames and datasets: read in batches, checked by row, counted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
