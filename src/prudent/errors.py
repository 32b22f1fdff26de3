"""The one exception prudent raises for bad input."""


class InputError(ValueError):
    """Bad input: the message says what was received, where, and what to do about it.

    >>> import prudent as pr
    >>> try:
    ...     pr.CVaR(1.5)
    ... except pr.InputError as error:
    ...     print(error)
    CVaR level must lie in [0, 1), got 1.5; use WorstCase() for the limit 1.
    """
