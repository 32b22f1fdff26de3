"""The word for what an answer stands on, and the sentence that says why: by its numbers, near every edge."""

import re

import numpy as np
import pytest

import prudent as pr
from prudent.objectives.evidence import FEW, Evidence, word_for


def test_the_rule_is_monotone_and_its_edges_belong_to_the_warning():
    for own in (0.0, 0.04, 0.5):
        chances = [own + more for more in (-own, 0.0, 0.119, 0.12, 0.359, 0.36, 0.5)]
        wanted = ["SOUND"] * 3 + ["THIN"] * 2 + ["UNSUPPORTED"] * 2
        assert [word_for(chance, own, 0.0, 0.0).name for chance in chances] == wanted
    assert [word_for(0.0, 0.0, time, 0.0).name for time in (0.0, 0.099, 0.1, 1.0)] == ["SOUND"] * 2 + ["THIN"] * 2
    assert [word_for(0.0, 0.0, 0.0, tail).name for tail in (0.0, 0.249, 0.25, 1.0)] == ["SOUND"] * 2 + ["THIN"] * 2
    assert [word_for(0.0, 0.0, 0.0, 0.0, cost).name for cost in (0.0, 0.499, 0.5, 1.0)] == ["SOUND"] * 2 + ["THIN"] * 2
    assert [word_for(0.9, 0.9 - more, 0.0, 0.25).name for more in (0.119, 0.12)] == ["THIN", "UNSUPPORTED"]
    assert [word_for(0.9, 0.9 - more, 0.0, 0.0, 0.5).name for more in (0.119, 0.12)] == ["THIN", "UNSUPPORTED"]
    assert word_for(0.0, 0.0, 1.0, 1.0, 1.0) is pr.Soundness.THIN
    assert word_for(1.0, 0.0, 1.0, 1.0) is pr.Soundness.UNSUPPORTED
    assert word_for(1.0, 1.0, 0.0, 0.0) is word_for(0.0, 1.0, 0.0, 0.0) is pr.Soundness.SOUND
    assert [word.warns for word in pr.Soundness] == [False, True, True]


def evidence_with(exceeded: float, own: float, tail: float, cost: float = 0.0, time: float = 0.01) -> pr.Evidence:
    others = tuple(pr.OtherPrior(name, 1.0, chance, None) for name, chance in (("one", 0.0), ("two", exceeded)))
    word = word_for(exceeded, own, time, tail, cost)
    return Evidence(word, "", FEW, time, tail, cost, (), others, exceeded, own)


CHANCE = "under the prior 'two', the loss is above the stated risk with probability"
NONE = CHANCE.replace("two", "one")
PAIRS = "uncertain pairs with fewer than 5 rows"
PASSES = f"of the discounted time passes through {PAIRS} (thin from 10 % on)"
TAIL = f"of the discounted time in the tail of the risk passes through {PAIRS} (thin from 25 % on)"
VARIES = f"of what the costs vary by falls to {PAIRS} (thin from 50 % on)"
OWN = "than under the belief itself"


@pytest.mark.parametrize(
    ("numbers", "word", "said"),
    [
        (
            (0.051, 0.047, 0.227),
            "sound",
            f"{CHANCE} 5.1 %, 0.4 points more {OWN} (4.7 %; thin from 12 points on); 1.0 % {PASSES}",
        ),
        (
            (0.0, 1.0, 0.0),
            "sound",
            f"{NONE} 0.0 %, 100.0 points less {OWN} (100.0 %; thin from 12 points on); 1.0 % {PASSES}",
        ),
        (
            (0.0, 0.0002, 0.2),
            "sound",
            f"{NONE} 0.0 %, within 0.1 points of that under the belief itself (under 0.1 %; thin from 12 points on); "
            f"1.0 % {PASSES}",
        ),
        ((0.7, 0.5, 0.1), "thin", f"{CHANCE} 70.0 %, 20.0 points more {OWN} (50.0 %; thin from 12 points on)"),
        ((0.05, 0.04, 0.612), "thin", f"61.2 % {TAIL}"),
        ((0.05, 0.04, 0.1, 0.998), "thin", f"99.8 % {VARIES}"),
        ((0.05, 0.04, 0.1, 0.1, 0.3), "thin", f"30.0 % {PASSES}"),
        ((0.05, 0.04, 0.3, 0.6), "thin", f"30.0 % {TAIL}; 60.0 % {VARIES}"),
        (
            (1.0, 0.0, 0.1),
            "unsupported",
            f"{CHANCE} 100.0 %, 100.0 points more {OWN} (0.0 %; unsupported from 36 points on)",
        ),
        (
            (0.25, 0.04, 0.7),
            "unsupported",
            f"{CHANCE} 25.0 %, 21.0 points more {OWN} (4.0 %; thin from 12 points on); 70.0 % {TAIL}; "
            "both together are unsupported",
        ),
        (
            (0.25, 0.04, 0.0, 0.7),
            "unsupported",
            f"{CHANCE} 25.0 %, 21.0 points more {OWN} (4.0 %; thin from 12 points on); 70.0 % {VARIES}; "
            "both together are unsupported",
        ),
        (
            (0.5, 0.04, 1.0),
            "unsupported",
            f"{CHANCE} 50.0 %, 46.0 points more {OWN} (4.0 %; unsupported from 36 points on); 100.0 % {TAIL}",
        ),
        (
            (0.99999, 0.00001, 0.0),
            "unsupported",
            f"{CHANCE} over 99.9 %, 100.0 points more {OWN} (under 0.1 %; unsupported from 36 points on)",
        ),
    ],
    ids=[
        *(
            "sound",
            "certain",
            "alike",
            "chance",
            "tail",
            "cost",
            "time",
            "tail-and-cost",
            "far",
            "both",
            "both-by-cost",
        ),
        *("far-and-tail", "almost"),
    ],
)
def test_the_sentence_says_what_failed_and_by_how_much(numbers, word, said):
    assert evidence_with(*numbers).rows()[0] == ("evidence", f"{word}: {said}")


def test_the_numbers_printed_make_the_word():
    """As read off the sentence, near every edge and where rounding would have taken a number across it."""
    random = np.random.default_rng(0)
    edges = np.array([0.0, 0.1, 0.12, 0.25, 0.36, 0.5, 0.62, 0.86, 1.0])
    near = (edges[:, None] + [-6e-4, -4e-4, 0.0, 4e-4, 6e-4]).ravel()
    shares = np.clip(np.concatenate([near, random.uniform(size=20)]), 0.0, 1.0)
    for exceeded, own, tail, cost, time in random.choice(shares, size=(3000, 5)).tolist():
        time *= float(random.choice([0.1, 1.0]))
        evidence = evidence_with(exceeded, own, tail, cost, time)
        said = evidence.message()
        # Both ends as they are rounded.
        plain = said.replace("under 0.1 %", "0.0 %").replace("over 99.9 %", "100.0 %")
        chance = re.search(r"probability ([\d.]+) %, (.*) under the belief itself \(([\d.]+) %;", plain)
        found = [
            re.search(rf"([\d.]+) % {what}", plain)
            for what in ("of the discounted time passes", "of the discounted time in the tail", "of what the costs")
        ]
        leans = [
            each is not None and float(each[1]) >= limit for each, limit in zip(found, (10.0, 25.0, 50.0), strict=True)
        ]
        assert leans == [round(1000 * time) >= 100, round(1000 * tail) >= 250, round(1000 * cost) >= 500]
        more = 0.0
        if chance is not None:
            more = round(float(chance[1]) - float(chance[3]), 6)
            how = "more" if more > 0 else "less"
            assert chance[2] == (f"{abs(more):.1f} points {how} than" if more else "within 0.1 points of that")
            assert (exceeded - own) * more >= 0.0
        failed = (more >= 36.0) + (more >= 12.0) + any(leans)
        assert evidence.word is [pr.Soundness.SOUND, pr.Soundness.THIN, *[pr.Soundness.UNSUPPORTED] * 2][failed]
        if failed == 0:
            assert chance is not None and found[0] is not None
