"""Event families: successors that all models share, probabilities of events that theta moves; solved by sweeps."""

from .engine import Engine
from .families import AbstractEventFamily, EventFamily, RescaledEvents, check_events
