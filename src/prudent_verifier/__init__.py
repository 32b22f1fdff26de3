"""Checks a proof of prudent's without any of its code: NumPy, the standard library, and one Bellman inequality a box.

A proof file lists models (one for each atom or draw of theta), a policy, and a binary tree of cuts whose leaves are
boxes of policies. It claims that no stationary policy has a risk below a bound on these models. Checked are

1. that the models are MDPs and the weights a distribution;
2. that the boxes cover all policies: they do if they are the leaves of a tree of cuts that begins at all policies;
3. the bound of every box: for any numbers v, with `T v = min_{row in box} <row, c + discount P v>`,

       min_pi <start, v^pi>  >=  <start, v> + min(0, min_s (T v - v)(s)) / (1 - discount),

   and the risk of these bounds over the models is below that of every policy in the box, because risks are monotone;
4. the policy's own risk, by solving for its value in every model;
5. that bound, risk and gap are what the file claims, rounding allowed for on the side of doubt.

Trusted are the models as the file lists them; that they are those of your problem is between you and the file, whose
digests of problem and log `prudent verify` compares with the run's.
"""

from .checking import Verdict, verify
from .reading import NoProof, Refused, read

__all__ = ["NoProof", "Refused", "Verdict", "read", "verify"]
