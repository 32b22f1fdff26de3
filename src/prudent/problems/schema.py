"""What a problem file may say: every key with its type, range, default and meaning; refusals name the line."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from ..errors import InputError
from ..tables import MOST_NAMES, suggest
from .limits import LimitSection
from .rules import RuleOrWord
from .sections import LOSSES, RISKS, SOLVERS, Level, Loss, Name, NotNegative, Risk, Section, Solver, wrong

Costs = dict[str, dict[str, float]]
Successors = dict[str, dict[str, list[Name]]]


class Data(Section):
    """The files, relative to the problem file."""

    transitions: str | Annotated[list[str], Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="the log: a file, or a list of them; may be left out where nothing was seen",
    )
    columns: dict[
        Literal["state", "action", "next_state", "episode", "unit", "time", "count", "cost", "reward"],
        str | Annotated[list[str], Field(min_length=1, max_length=8)],
    ] = Field(
        default={},
        description='what columns of the log are called, where that is something else, such as `{ state = "s" }`; '
        'an empty text leaves a column alone; `{ state = ["row", "column"] }` makes a state of several',
    )
    trajectories: bool = Field(
        default=False,
        description="rows of the log are consecutive steps without `next_state`: it is the state of the row behind, in "
        "the same `episode`, or `unit`, if there is such a column",
    )
    again: bool = Field(
        default=False, description="count a log that is listed twice, or has the rows of another one, as often as it is"
    )
    costs: str | Costs | None = Field(
        default=None,
        description="a file with `state`, `action`, `cost`, and `next_state` if costs differ by it; or a table "
        "`state.action = cost`; where it has no cost of a pair, the log's column `cost`, or its `reward` as a negative "
        "cost",
    )
    default_cost: float | None = Field(
        default=None,
        description="the cost where none is given, but of terminal states, no lower than the dearest that is known: "
        "pairs that nobody tried may look better than they are otherwise; when left out, a missing cost is refused",
    )


class PosteriorSection(Section):
    """What is believed of the transition probabilities before the log."""

    kind: Literal["pooled", "dirichlet", "outcomes"] | None = Field(
        default=None,
        description="`pooled` (when left out, unless `observed` or a `prior` for a list or rule asks for the next), "
        "independent `dirichlet` rows, or `outcomes` with laws that rows share",
    )
    prior: Annotated[float, Field(gt=0.0, le=1e9)] | None = Field(
        default=None,
        description="for `dirichlet` and `outcomes`: pseudo-count of every successor or outcome; 1 (uniform) when left "
        "out",
    )
    outcomes: str | None = Field(
        default=None,
        description="for `outcomes`: a file with `state`, `action`, `outcome`, `next_state`, and `law` if there are "
        "several: where each outcome leads; with `cost`, what it costs, in the place of `data.costs`",
    )
    outcomes_seen: str | None = Field(
        default=None,
        description="for `outcomes`: a file with `outcome`, and `count` if rows count more than once: what was seen of "
        "outcomes beside the log; where there are several laws, with `law`, or `state` and `action`",
    )
    support: Literal["observed", "listed", "rule", "all"] = Field(
        default="all",
        description="which successors a pair may have: all states, those in `successors`, those that `rule` allows, or "
        "those in the log (any state for a pair never seen), which takes one observation for a certainty",
    )
    successors: str | Successors | None = Field(
        default=None,
        description="for `listed`: a file with `state`, `action`, `next_state`, or a table `state.action = [...]`; "
        "for `rule`: the same for pairs to which the rule does not apply",
    )
    rule: RuleOrWord | None = Field(
        default=None, description='for `rule`: `"adjacent"`, or a table of bounds on how far one step may lead'
    )
    never_entered: list[Name] = Field(default=[], description="states that no step leads to; one may begin there")

    @model_validator(mode="after")
    def _lists(self) -> PosteriorSection:
        by_outcome = self.kind == "outcomes"
        stray = [key for key in ("support", "successors", "rule", "never_entered") if key in self.model_fields_set]
        if by_outcome and stray:
            raise wrong("support", "the outcomes say where a pair may lead; remove {key}", key=stray[0])
        if by_outcome != (self.outcomes is not None) or (self.outcomes_seen is not None and not by_outcome):
            raise wrong("support", 'kind = "outcomes" and the file outcomes go together; give both, or neither')
        for support, key in (("listed", "successors"), ("rule", "rule")):
            given, names = getattr(self, key) is not None, {"support": support, "key": key}
            if self.support == support and not given:
                raise wrong("support", 'support = "{support}" needs {key}; give {key}', **names)
            if given and self.support != support and (self.support, key) != ("rule", "successors"):
                raise wrong("support", 'support and {key} do not go together; set support = "{support}"', **names)
        stray = "prior" if self.prior is not None else 'support = "observed"' if self.support == "observed" else None
        if self.pooled and stray:
            fix = '{stray} is for independent rows; remove it, or set kind = "dirichlet"'
            raise wrong("pooled", fix, stray=stray)
        return self

    @property
    def pooled(self) -> bool:
        """Whether rows learn from one another; when nothing is said, unless a pseudo-count makes sense without it."""
        if self.kind is not None:
            return self.kind == "pooled"
        return self.support == "all" or (self.support != "observed" and self.prior is None)


class Rivals(Section):
    """The plans the policy is compared with in the report."""

    robust_radius: NotNegative | None = Field(
        default=None,
        description="radius of the robust plan's Kullback-Leibler balls, in nats; when left out, one that "
        "holds each row with a probability of 0.9",
    )


class CertificateSection(Section):
    """How well the answer is known to be good; a lower bound on the risk of every policy is always looked for."""

    prove: bool = Field(
        default=False,
        description="also search all stationary policies by branch and bound, as `prudent prove` does; tables of at "
        "most 48 states",
    )
    gap: Annotated[float, Field(ge=0.0)] = Field(default=1e-3, description="the search ends at this share of the risk")
    seconds: Annotated[float, Field(gt=0.0)] = Field(default=60.0, description="or after so long")
    deterministic: bool = Field(default=False, description="of policies with one action in each state only")
    samples: Annotated[int, Field(ge=2)] = Field(
        default=64, description="draws that are searched, of a posterior that is not a few points"
    )


class Layout(Section):
    """How the report draws the policy."""

    grid: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=8)] | None = Field(
        default=None,
        description="`[rows, columns]` where the states form a grid, row by row, or the sizes of more axes, the last "
        "one the fastest; two are drawn",
    )
    directions: list[Literal["left", "down", "right", "up"]] | None = Field(
        default=None, description="which way each action points on the grid"
    )


class ProblemFile(Section):
    """The keys outside any table."""

    title: Annotated[str, Field(max_length=200)] = Field(default="", description="heads the report")
    states: Annotated[int, Field(ge=1, le=MOST_NAMES)] | list[Name] | dict[str, str] | None = Field(
        default=None,
        description="names in their order, or how many there are; when left out, those in the files. A table "
        '`{ 0 = "keep", 1 = "replace" }` names what the files have numbers, or other codes, for',
    )
    actions: Annotated[int, Field(ge=1, le=MOST_NAMES)] | list[Name] | dict[str, str] | None = Field(
        default=None, description="the same for actions"
    )
    discount: Level | None = Field(default=None, description="in [0, 1); required, unless a family brings its own")
    start: Name | list[float] | dict[str, float] | None = Field(
        default=None,
        description="a state, a list with a probability for each, or a table `state = probability`; required, "
        "unless a family brings its own",
    )
    terminal: list[Name] = Field(default=[], description="states that are never left; their costs are 0 unless given")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="the same seed gives the same bits")
    family: str | None = Field(
        default=None, description="`module:function` of a model of your own; imported only with `--trust`"
    )
    options: dict[str, Any] = Field(default={}, description="arguments by name for the family's function")
    data: Data = Field(default=Data(), description="the files")
    posterior: PosteriorSection = Field(default=PosteriorSection(), description="what is believed before the log")
    risk: Risk = Field(default=RISKS["cvar"](kind="cvar"), description="what is minimised over the posterior")
    loss: Loss = Field(
        default=LOSSES["expected-cost"](kind="expected-cost"), description="what a policy loses in a known model"
    )
    limit: Annotated[list[LimitSection], Field(max_length=20)] = Field(default=[], description="what else is limited")
    solver: Solver = Field(default=SOLVERS["sample-average"](kind="sample-average"), description="how it is solved")
    rivals: Rivals = Field(default=Rivals(), description="what it is compared with")
    certificate: CertificateSection = Field(default=CertificateSection(), description="what is proved of it")
    layout: Layout = Field(default=Layout(), description="how it is drawn")

    @field_validator("family")
    @classmethod
    def _two_parts(cls, value: str | None) -> str | None:
        parts = (value or "a:b").split(":")
        if len(parts) != 2 or not all(name.isidentifier() for part in parts for name in part.split(".")):
            raise wrong("family", "family is written module:function")
        return value

    @model_validator(mode="after")
    def _one_model(self) -> ProblemFile:
        if self.family is None and self.options:
            raise wrong("options", "options are for a family's function, and no family is named")
        own = {
            "discount": self.discount,
            "start": self.start,
            "data.costs": self.data.costs,
            "data.default_cost": self.data.default_cost,
            "posterior.successors": self.posterior.successors,
            "posterior.rule": self.posterior.rule,
            "posterior.outcomes": self.posterior.outcomes,
            "posterior.never_entered": self.posterior.never_entered or None,
            "terminal": self.terminal or None,
        }
        for name, given in own.items():
            if self.family is not None and given is not None:
                raise wrong("family", "the family brings its own {name}; remove it", name=name)
            if self.family is None and given is None and name in ("discount", "start"):
                raise wrong("required", "{name} is missing", name=name)
        return self

    @model_validator(mode="after")
    def _limits_alone(self) -> ProblemFile:
        if self.limit and self.solver.kind != "sample-average":
            raise wrong("limit", "a limit needs the solver sample-average; leave solver.kind out")
        if self.limit and self.certificate.prove:
            fix = "certificate.prove knows no limits; leave it out, the run's own bound is about policies in them"
            raise wrong("limit", fix)
        return self


def parse(
    content: dict[str, Any],
    source: str,
    text: str = "",
    kind: type[Section] = ProblemFile,
    changes: Collection[str] = (),
) -> Any:
    """Checked content of a kind of file from plain values; the first thing wrong is refused.

    Args:
        content: the values.
        source: where they are from, for messages.
        text: of the file, for the number of a line.
        kind: of file.
        changes: keys that were set over what the file says.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{source}{_message(error, text, changes)}") from None
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None


def risk_from_words(words: str) -> dict[str, Any]:
    """`cvar:0.9` as the table `[risk]` would have it."""
    kind, colon, number = words.partition(":")
    known = RISKS.get(kind)
    if known is None or kind == "mixture":
        names = [name for name in RISKS if name != "mixture"]
        raise InputError(
            f"--risk {words!r}: there is no risk {kind!r}{suggest(kind, names) or '; ' + ', '.join(names)}"
        )
    table: dict[str, Any] = {"kind": kind}
    if colon:
        key = known.alone()
        if key is None:
            raise InputError(f"--risk {words!r}: {kind} takes no number")
        try:
            table[key] = float(number)
        except ValueError:
            raise InputError(f"--risk {words!r}: {number!r} is not a number; write it like cvar:0.9") from None
    return table


def _message(error: ValidationError, text: str, changes: Collection[str]) -> str:
    """What is wrong with a file's content, and in which line, or that it was set over the file."""
    # Of a value that could be several things, the one it came closest to being.
    first = max(error.errors(include_url=False), key=lambda each: len(_path(each)))
    path = _path(first)
    shown = first["input"]
    if first["type"] == "unknown_key":
        key = first.get("ctx", {})["key"]
        return f"{_place(text, [*path, key.strip(chr(39))], changes)}: {first['msg']}" + (
            f" in [{'.'.join(path)}]" if path else ""
        )
    name = ".".join(path)
    # What a class refuses begins with its name; pydantic begins its sentences with a capital.
    said = first["msg"] if first["type"] == "settings" else first["msg"][:1].lower() + first["msg"][1:]
    if first["type"] == "missing":
        said = "is missing"
    elif first["type"] == "union_tag_not_found":
        said = f"has no kind; use {_kinds(path)}"
    elif first["type"] == "union_tag_invalid":
        tag, kinds = (first.get("ctx", {})[name] for name in ("tag", "expected_tags"))
        near = suggest(tag, [kind.strip(" '") for kind in kinds.split(",")])
        said = f"kind {tag!r} is unknown{near or '; use ' + kinds}"
    elif isinstance(shown, str | int | float) and first["type"] not in ("support", "settings", "rule"):
        said += f", got {str(shown)[:60]!r}" if isinstance(shown, str) else f", got {str(shown)[:40]}"
    return f"{_place(text, path, changes)}: {name and name + ': '}{said}"


def _path(error: Any) -> list[str]:
    """The keys of the file that lead to what is wrong."""
    return [str(part) for part in error["loc"] if not _is_tag(part)]


def _kinds(path: list[str]) -> str:
    return ", ".join(RISKS if "risk" in path else LOSSES)


def _is_tag(part: Any) -> bool:
    """Whether a step of an error's path is pydantic's name for a member of a union, not a key of the file."""
    if not isinstance(part, str):
        return False
    return part in (*RISKS, *LOSSES, *SOLVERS) or (part in ("str", "int", "float", "constrained-int") or "[" in part)


# Keys that a command sets over the file: its option is the last part of the key.
BY_OPTION = ("risk", "seed", "solver.iterations", "data.columns", "data.trajectories")


def _place(text: str, path: list[str], changes: Collection[str]) -> str:
    """The line of a key; of one that was set over the file, the option that does so."""
    over = next((key for key in changes if path[: key.count(".") + 1] == key.split(".")), None)
    if over is None:
        return _line_of(text, path)
    option = f"--{over.rpartition('.')[2]}, or " if over in BY_OPTION else ""
    return f", with {over} set over what it says ({option}changes= in Python)"


def _line_of(text: str, path: list[str]) -> str:
    """`, line 7` of the key at a path, where it can be found in the text."""
    words = [word for word in path if not word.isdigit()]
    if not words:
        return ""
    table, best = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
        if header and "=" not in line.split("]")[0]:
            table = header.group(1).replace('"', "").replace(" ", "")
            if table == ".".join(words):
                best = number
            continue
        key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if key:
            full = ".".join(filter(None, [table, key.group(1).replace('"', "").replace("'", "")]))
            if full == ".".join(words) or (not best and ".".join(words).startswith(full + ".")):
                best = number
    return f", line {best}" if best else ""
