"""Linear systems with quadratic costs, or any convex loss of their occupancy: a model of its own at the seam.

Its parts are imported when they are asked for: objectives and plans need JAX, systems, beliefs and policies do not.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
