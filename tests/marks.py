"""Parameters of which a few are short."""

import pytest


def short(few, every):
    """All of `every` as parameters; those that are not among `few` are long."""
    assert all(each in every for each in few)
    return [each if each in few else pytest.param(each, marks=pytest.mark.long) for each in every]
