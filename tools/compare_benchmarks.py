"""Two outputs of `make bench`, line by line: which numbers of a label grew by more than a factor.

Lines are compared by their words; a line of one output alone is said, not counted. The exit code is 1 if one is worse.
"""

import argparse
import re
import sys
from pathlib import Path

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?")
SHORTER_IS_BETTER = re.compile(r"\b(s|ms|seconds?|MiB|GiB|bytes)\b")


def read(path: str) -> dict[str, list[float]]:
    """Numbers by line, the line without them."""
    found = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        numbers = [float(each) for each in NUMBER.findall(line)]
        if numbers and SHORTER_IS_BETTER.search(line):
            found[" ".join(NUMBER.sub("#", line).split())] = numbers
    return found


def worse(before: dict[str, list[float]], after: dict[str, list[float]], factor: float) -> list[str]:
    """Lines with a number that grew by more than the factor."""
    return [
        f"{line}: {old} -> {new}"
        for line, new in after.items()
        if (old := before.get(line)) is not None
        and len(old) == len(new)
        and any(b > factor * a > 0 for a, b in zip(old, new, strict=True))
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--worse", type=float, default=1.2)
    given = parser.parse_args()
    before, after = read(given.before), read(given.after)
    for line in sorted(before.keys() ^ after.keys()):
        print("in one of them only:", line)
    slower = worse(before, after, given.worse)
    print("\n".join(slower) or f"no line grew by more than {given.worse:g}")
    sys.exit(bool(slower))
