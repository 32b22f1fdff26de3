"""The word for what an answer stands on, and the sentence that says why: by its numbers, near every edge."""

import re

import numpy as np
import pytest

import prudent as pr
from prudent.objectives.footing import FEW, Footing, word_for


def test_the_rule_is_monotone_and_its_edges_belong_to_the_warning():
    for own in (0.0, 0.04, 0.5):
        chances = [own + more for more in (-own, 0.0, 0.159, 0.16, 0.359, 0.36, 0.5)]
        wanted = ["SOUND"] * 3 + ["THIN"] * 2 + ["UNSUPPORTED"] * 2
        assert [word_for(chance, own, 0.0).name for chance in chances] == wanted
    assert [word_for(0.0, 0.0, time).name for time in (0.0, 0.499, 0.5, 1.0)] == ["SOUND"] * 2 + ["THIN"] * 2
    assert [word_for(0.9, 0.9 - more, 0.5).name for more in (0.159, 0.16)] == ["THIN", "UNSUPPORTED"]
    assert word_for(1.0, 0.0, 1.0) is pr.Soundness.UNSUPPORTED
    assert word_for(1.0, 1.0, 0.0) is word_for(0.0, 1.0, 0.0) is pr.Soundness.SOUND
    assert [word.warns for word in pr.Soundness] == [False, True, True]


def footing_with(exceeded: float, own: float, tail_time: float) -> pr.Footing:
    others = tuple(pr.OtherPrior(name, 1.0, exceeded, None) for name in ("one", "two", "three"))
    word = word_for(exceeded, own, tail_time)
    return Footing(word, "", FEW, 0.01, tail_time, (), others, exceeded, own)


CHANCE = "averaged over 3 priors for the same rows, a loss above the stated risk has a chance of"
PASSES = (
    "of the discounted time where the risk is made passes through uncertain pairs with fewer than 5 rows "
    "(thin from half on)"
)
OWN = "than on the belief's own draws"


@pytest.mark.parametrize(
    ("numbers", "word", "said"),
    [
        (
            (0.051, 0.047, 0.227),
            "sound",
            f"{CHANCE} 5.1 %, 0.4 points more {OWN} (4.7 %; thin from 16 more on); 22.7 % {PASSES}",
        ),
        (
            (0.0, 1.0, 0.0),
            "sound",
            f"{CHANCE} 0.0 %, 100.0 points less {OWN} (100.0 %; thin from 16 more on); 0.0 % {PASSES}",
        ),
        (
            (0.0, 0.0002, 0.0),
            "sound",
            f"{CHANCE} 0.0 %, within 0.1 points of that on the belief's own draws (under 0.1 %; thin from 16 more on); "
            f"0.0 % {PASSES}",
        ),
        ((0.7, 0.5, 0.1), "thin", f"{CHANCE} 70.0 %, 20.0 points more {OWN} (50.0 %; thin from 16 more on)"),
        ((0.05, 0.04, 0.612), "thin", f"61.2 % {PASSES}"),
        (
            (1.0, 0.0, 0.1),
            "unsupported",
            f"{CHANCE} 100.0 %, 100.0 points more {OWN} (0.0 %; unsupported from 36 more on)",
        ),
        (
            (0.25, 0.04, 0.7),
            "unsupported",
            f"{CHANCE} 25.0 %, 21.0 points more {OWN} (4.0 %; thin from 16 more on); 70.0 % {PASSES}; "
            "both together are unsupported",
        ),
        (
            (0.5, 0.04, 1.0),
            "unsupported",
            f"{CHANCE} 50.0 %, 46.0 points more {OWN} (4.0 %; unsupported from 36 more on); 100.0 % {PASSES}",
        ),
        (
            (0.99999, 0.00001, 0.0),
            "unsupported",
            f"{CHANCE} over 99.9 %, 100.0 points more {OWN} (under 0.1 %; unsupported from 36 more on)",
        ),
    ],
    ids=["sound", "certain", "alike", "chance", "time", "far", "both", "far-and-time", "almost"],
)
def test_the_sentence_says_what_failed_and_by_how_much(numbers, word, said):
    assert footing_with(*numbers).rows()[0] == ("footing", f"{word}: {said}")


def test_the_numbers_printed_make_the_word():
    """As read off the sentence, near every edge and where rounding would have taken a number across it."""
    random = np.random.default_rng(0)
    near = (np.array([0.0, 0.16, 0.36, 0.5, 0.66, 0.86, 1.0])[:, None] + [-6e-4, -4e-4, 0.0, 4e-4, 6e-4]).ravel()
    shares = np.clip(np.concatenate([near, random.uniform(size=20)]), 0.0, 1.0)
    for exceeded, own, time in random.choice(shares, size=(3000, 3)).tolist():
        footing = footing_with(exceeded, own, time)
        said = footing.message()
        # Both ends as they are rounded.
        plain = said.replace("under 0.1 %", "0.0 %").replace("over 99.9 %", "100.0 %")
        chance = re.search(r"chance of ([\d.]+) %, (.*) on the belief's own draws \(([\d.]+) %;", plain)
        passes = re.search(r"([\d.]+) % of the discounted time", plain)
        more, leans = 0.0, passes is not None and float(passes[1]) >= 50.0
        if chance is not None:
            more = round(float(chance[1]) - float(chance[3]), 6)
            how = "more" if more > 0 else "less"
            assert chance[2] == (f"{abs(more):.1f} points {how} than" if more else "within 0.1 points of that")
            assert (exceeded - own) * more >= 0.0
        failed = (more >= 36.0) + (more >= 16.0) + leans
        assert footing.word is [pr.Soundness.SOUND, pr.Soundness.THIN, *[pr.Soundness.UNSUPPORTED] * 2][failed]
        assert (chance is not None) + (passes is not None) == (2 if failed == 0 else (more >= 16.0) + leans)
