"""A policy for finitely many states: asked, looked at, written to a file and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ..arrays import Array, as_float, require_distribution, require_indices
from ..errors import InputError
from ..files import write_whole
from ..records import Record, field
from ..tables import Labels, frame_of

FORMAT = "prudent policy 1"

# Lists and tables take far more memory than the text of them; a table of two million states fits.
LARGEST_FILE, MOST_PARTS = 2**28, 2**22


def write_policy_file(path: str | Path, kind: str, content: Mapping[str, Any]) -> Path:
    """Write a policy of a kind; the file is replaced whole or not at all."""
    text = json.dumps({"format": FORMAT, "kind": kind, **content}, allow_nan=False, ensure_ascii=False)
    data = (text + "\n").encode()
    if len(data) > LARGEST_FILE or _parts(data) > MOST_PARTS:
        raise InputError(f"{path}: would be larger than a policy may be that is read back; save its array by NumPy")
    return write_whole(path, data)


def read_policy_file(path: str | Path) -> dict[str, Any]:
    """The content of a policy's file; what is none is refused."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if path.stat().st_size > LARGEST_FILE:
        raise InputError(f"{path}: is larger than {LARGEST_FILE >> 20} MiB; it is no policy that prudent wrote")
    try:
        data = path.read_bytes()
        if _parts(data) > MOST_PARTS:
            raise InputError(f"{path}: has more parts than any policy that prudent wrote")
        content = json.loads(data.decode())
    except InputError:
        raise
    except (ValueError, RecursionError, UnicodeDecodeError, OSError):
        raise InputError(f"{path}: is not JSON; name a file that policy.save(...) wrote") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path}: has no format {FORMAT!r}; name a file that policy.save(...) wrote")
    return content


def _parts(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def policy_from(path: str | Path, kinds: Mapping[str, Any]) -> Any:
    """The policy of a file, made by the class of its kind; what the class refuses is refused with the file's name."""
    content = read_policy_file(path)
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{path}: holds a policy of the kind {str(kind)[:40]!r}; here it must be {' or '.join(kinds)}")
    try:
        return kinds[kind].from_content(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise InputError(f"{path}: is damaged ({reason}); save the policy again") from None


class TabularPolicy(Record):
    """Action probabilities, `[S, A]`, rows summing to 1, with the names of states and actions where they have some.

    >>> import prudent as pr
    >>> policy = pr.TabularPolicy([[1.0, 0.0], [0.0, 1.0]], states=["new", "worn"], actions=["run", "service"])
    >>> policy.act("worn", seed=7), policy.act(1, seed=7)
    ('service', 'service')
    >>> policy.table("pyarrow").column_names
    ['state', 'run', 'service']

    Args:
        probabilities: `[S, A]`.
        states: their names in order; numbers when left out.
        actions: the same for actions.
    """

    probabilities: Float[Array, "S A"]
    labels: Labels = field(static=True)

    def __init__(
        self,
        probabilities: ArrayLike,
        states: Sequence[str] | int | None = None,
        actions: Sequence[str] | int | None = None,
    ):
        self.probabilities = as_float(probabilities)
        table = np.asarray(self.probabilities)
        if table.ndim != 2:
            raise InputError(f"a policy is indexed [state, action], got shape {table.shape}")
        require_distribution("policy", table, ("state",))
        plain = Labels(*table.shape)
        if states is None and actions is None:
            self.labels = plain
            return
        named = (plain.states if states is None else states, plain.actions if actions is None else actions)
        self.labels = Labels.of(*named)
        if self.labels.shape != table.shape:
            raise InputError(
                f"the policy has shape {table.shape}, and there are names of {self.labels.shape[0]} states and "
                f"{self.labels.shape[1]} actions"
            )

    @staticmethod
    def deterministic(action: Any, actions: int) -> TabularPolicy:
        """The policy that always takes `action[s]` in state s."""
        return TabularPolicy(np.eye(actions)[require_indices("action", action, actions)])

    def named(self, labels: Labels | None) -> TabularPolicy:
        """The same table with these names; as it is where there are none."""
        return self if labels is None else TabularPolicy(self.probabilities, labels.states, labels.actions)

    def within(self, states: Any, elsewhere: Any) -> TabularPolicy:
        """This policy in some states, and another one in all others.

        Where a log is silent, what is done today is a better guess than what a plan makes up:
        `solution.policy.within(belief.visited(), today)`.

        >>> import prudent as pr
        >>> plan = pr.TabularPolicy([[1.0, 0.0], [1.0, 0.0]], states=["new", "worn"])
        >>> plan.within(["worn"], elsewhere=[[0.5, 0.5], [0.5, 0.5]]).probabilities.tolist()
        [[0.5, 0.5], [1.0, 0.0]]

        Args:
            states: a mask `[S]`, or the names or numbers of the states in which it is this policy.
            elsewhere: the other policy, a `TabularPolicy` or an array `[S, A]`.
        """
        other = action_probabilities(elsewhere, *self.labels.shape)
        inside = np.asarray(states)
        if inside.dtype == bool:
            if inside.shape != other.shape[:1]:
                raise InputError(f"a mask of states has shape {other.shape[:1]}, got {inside.shape}")
        else:
            named = [states] if isinstance(states, str) or np.ndim(states) == 0 else list(states)
            numbers = [self.labels.number("state", state) for state in named]
            inside = np.isin(np.arange(len(other)), numbers)
        table = np.where(inside[:, None], np.asarray(self.probabilities), other)
        return TabularPolicy(table, self.labels.states, self.labels.actions)

    def greedy(self) -> np.ndarray:
        """`[S]` the most probable action of each state."""
        return np.asarray(self.probabilities).argmax(axis=1)

    def act(self, state: str | int, seed: int | np.random.Generator | None = None) -> Any:
        """An action for a state: its name, or its number where actions have no names.

        Args:
            state: its name or number; what is returned does not depend on which.
            seed: of the random choice, where the policy makes one: a whole number (the same seed, the same action), or
                a NumPy generator, which goes on. When left out, every call makes a choice of its own.
        """
        row = np.asarray(self.probabilities)[self.labels.number("state", state)]
        chosen = int(chosen_by(row[None], seed)[0])
        return chosen if isinstance(self.labels.actions, int) else self.labels.name("action", chosen)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        seed: int | np.random.Generator | None = None,
    ) -> tuple[Int[np.ndarray, "*N"], Any]:
        """Actions for observations, as Stable-Baselines3's models answer: `(actions, state)`.

        Args:
            observation: the number of a state, or an array of them.
            state: handed back as it is; a table remembers nothing.
            episode_start: not looked at.
            deterministic: the most probable action in the place of a random one.
            seed: as in `act`.
        """
        del episode_start
        numbers = require_indices("observation", observation, len(self.probabilities))
        rows = np.asarray(self.probabilities)[numbers.ravel()]
        chosen = rows.argmax(axis=1) if deterministic else chosen_by(rows, seed)
        return chosen.reshape(np.shape(numbers)), state

    def table(self, backend: str | None = None) -> Any:
        """A frame with a row for each state: its name, and a column with the chance of each action.

        Args:
            backend: `pandas`, `polars` or `pyarrow`; when left out, the first of these that is installed.
        """
        columns: dict[str, Any] = {"state": list(self.labels.all("state"))}
        for name, column in zip(self.labels.all("action"), np.asarray(self.probabilities).T, strict=True):
            # An action may be called like the column of states.
            columns[name if name not in columns else f"{name} (action)"] = column
        return frame_of(columns, backend)

    def save(self, path: str | Path) -> Path:
        """Write the policy as JSON: `format`, `kind`, `states`, `actions`, `probabilities`.

        >>> import prudent as pr, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pr.TabularPolicy([[0.1, 0.9]]).save(f"{folder}/policy.json")
        ...     pr.TabularPolicy.load(path).probabilities.tolist()
        [[0.1, 0.9]]
        """
        return write_policy_file(path, "table", self.content())

    def content(self) -> dict[str, Any]:
        """What a file holds of it."""
        return {
            "states": list(self.labels.all("state")),
            "actions": list(self.labels.all("action")),
            "probabilities": np.asarray(self.probabilities).tolist(),
        }

    @staticmethod
    def from_content(content: Mapping[str, Any]) -> TabularPolicy:
        """The policy of a file's content, checked."""
        for kind in ("states", "actions"):
            if not isinstance(content[kind], list):
                raise InputError(f"names of {kind} are a list, got {type(content[kind]).__name__}")
        return TabularPolicy(content["probabilities"], content["states"], content["actions"])

    @staticmethod
    def load(path: str | Path) -> TabularPolicy:
        """The policy that `save` wrote."""
        return policy_from(path, {"table": TabularPolicy})

    def __repr__(self) -> str:
        states, actions = self.labels.shape
        sure = int((np.asarray(self.probabilities).max(axis=1) == 1.0).sum())
        return f"TabularPolicy({states} states, {actions} actions; one action for sure in {sure} states)"


def chosen_by(rows: Float[np.ndarray, "N A"], seed: int | np.random.Generator | None) -> Int[np.ndarray, " N"]:
    """One action for each row of probabilities; never one of probability 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer | np.random.Generator | None):
        raise InputError(f"seed must be a whole number, a numpy.random.Generator or None, got {seed!r}")
    if isinstance(seed, int | np.integer) and seed < 0:
        raise InputError(f"seed must be >= 0, got {seed}")
    return picked(np.cumsum(rows, axis=1), np.random.default_rng(seed))


def picked(cumulative: Float[np.ndarray, "N A"], generator: np.random.Generator) -> Int[np.ndarray, " N"]:
    """One entry for each row of a cumulative distribution; never one of probability 0."""
    uniform = generator.random(len(cumulative)) * cumulative[:, -1]
    return (cumulative <= uniform[:, None]).sum(axis=1)


def action_probabilities(policy: Any, states: int, actions: int) -> np.ndarray:
    """The checked table `[S, A]` of a policy that has one, or of an array."""
    table = getattr(policy, "probabilities", None)
    table = TabularPolicy(policy if table is None else table)
    if table.probabilities.shape != (states, actions):
        raise InputError(f"the policy has shape {table.probabilities.shape}, the model needs {(states, actions)}")
    return np.asarray(table.probabilities)
