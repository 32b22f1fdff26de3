"""What is believed of theta after the data, `mu_N` in the paper; a kind of belief is imported when it is first used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
