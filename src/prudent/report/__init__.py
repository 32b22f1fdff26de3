"""The record of a run, and one self-contained HTML page of it, which computes nothing that the record does not hold."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
