"""The log of what has been observed."""

from .evidence import Evidence, kernel_at, log_likelihood
from .log import Log, Transitions, Trials, codes, merge, read_log

__all__ = ["Evidence", "Log", "Transitions", "Trials", "codes", "kernel_at", "log_likelihood", "merge", "read_log"]
