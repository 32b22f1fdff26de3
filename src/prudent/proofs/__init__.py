"""Proofs that no stationary policy is better by more: branch and bound over boxes of policies."""

from .file import proof_file, write_proof
from .proving import Proof, Replicate, prove
from .search import Moment, check_provable
from .tree import Cuts
