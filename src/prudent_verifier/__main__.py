"""`python -P -m prudent_verifier FILE`: exit code 0 where the proof holds, 1 where it does not, 2 where it is none."""

import sys

from .checking import verify
from .reading import NoProof, Refused


def main(arguments: list[str]) -> int:
    """Check one file and say so."""
    if len(arguments) != 1:
        print("usage: python -P -m prudent_verifier FILE", file=sys.stderr)
        return 2
    try:
        print(verify(arguments[0]))
    except OSError as error:
        print(f"cannot read {arguments[0]!r}: {error.strerror}", file=sys.stderr)
        return 2
    except NoProof as refusal:
        print(f"is no proof: {refusal}", file=sys.stderr)
        return 2
    except Refused as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
