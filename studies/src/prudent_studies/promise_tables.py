"""The study of promises as tables: means over logs, and what its cheaper solves change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .promise import SIZES


class PromiseRow(NamedTuple):
    """Means over logs, each with its standard error, nan where there is one log only.

    Attributes:
        label: what the logs have in common.
        candidate: which belief.
        logs: how many.
        kept, kept_error: share in which the loss was at most the stated risk.
        regret, regret_error: loss above the optimum, as a share of that of uniform actions.
        likelihood, likelihood_error, mean, mean_error: the same of the plug-in plans.
        slack, slack_error: stated risk above the loss, in the same unit.
        warned: of the logs that kept it, the share with a word other than sound; nan where none is said.
        broken_unwarned: share of logs that broke the promise without a warning.
    """

    label: str
    candidate: str
    logs: int
    kept: float
    kept_error: float
    regret: float
    regret_error: float
    likelihood: float
    likelihood_error: float
    mean: float
    mean_error: float
    slack: float
    slack_error: float
    warned: float
    broken_unwarned: float


def summarised(label: str, candidate: str, records: Sequence[dict[str, Any]]) -> PromiseRow:
    """One row of a table."""
    numbers: dict[str, float] = {}
    columns = {"regret_likelihood": "likelihood", "regret_mean": "mean"}
    for column in ("kept", "regret", "regret_likelihood", "regret_mean", "slack"):
        values = np.array([float(record[column]) for record in records])
        error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        name = columns.get(column, column)
        numbers |= {name: float(values.mean()), f"{name}_error": float(error)}
    words = [record["warning"] for record in records]
    alarms = [word != "sound" for record, word in zip(records, words, strict=True) if record["kept"]]
    warned = math.nan if None in words or not alarms else float(np.mean(alarms))
    unwarned = [not record["kept"] and word in (None, "sound") for record, word in zip(records, words, strict=True)]
    return PromiseRow(
        label, candidate, len(records), **numbers, warned=warned, broken_unwarned=float(np.mean(unwarned))
    )


def tables(records: Sequence[dict[str, Any]]) -> dict[str, list[PromiseRow]]:
    """By environment with at least 500 steps, and by size over all environments; of the cheaper solves."""
    records = [record for record in records if not record.get("full")]
    by_name = [(record["environment"], record) for record in records if record["steps"] >= SIZES[1]]
    by_size = [(f"{record['steps']:,} steps", record) for record in records]
    everything = [("all logs", record) for record in records]
    return {
        "logs of 500 steps or more": _rows(by_name) + _rows([("all", record) for _, record in by_name]),
        "all environments": _rows(by_size) + _rows(everything),
    }


def _rows(labelled: Sequence[tuple[str, dict[str, Any]]]) -> list[PromiseRow]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for label, record in labelled:
        groups.setdefault((label, record["candidate"]), []).append(record)
    return [summarised(*group, members) for group, members in groups.items()]


class Apart(NamedTuple):
    """How much more a candidate loses than the first one on the same logs: the mean, and its standard error."""

    label: str
    candidate: str
    first: str
    logs: int
    regret: float
    error: float


def differences(records: Sequence[dict[str, Any]]) -> list[Apart]:
    """Of each candidate but the first, in all logs and by environment and size where it has two or more."""
    records = [record for record in records if not record.get("full")]
    names = list(dict.fromkeys(record["candidate"] for record in records))
    if not names:
        return []
    found: dict[tuple[str, str], list[float]] = {}
    places = ("environment", "steps", "log")
    first = {tuple(record[place] for place in places): record for record in records if record["candidate"] == names[0]}
    for record in records:
        other = first.get(tuple(record[place] for place in places))
        if other is not None and other is not record:
            for label in ("all logs", f"{record['environment']} {record['steps']:,} steps"):
                found.setdefault((record["candidate"], label), []).append(record["regret"] - other["regret"])
    return [
        Apart(
            label,
            name,
            names[0],
            len(values),
            float(np.mean(values)),
            float(np.std(values, ddof=1) / len(values) ** 0.5),
        )
        for (name, label), values in sorted(found.items(), key=lambda each: names.index(each[0][0]))
        if len(values) > 1
    ]


class Thrift(NamedTuple):
    """What the cheaper solves of a study change, over logs that were solved both ways.

    Attributes:
        logs: how many.
        stated, stated_largest: the longer solve's stated risk less the other's, in the latter's standard errors: the
            mean, and the largest size.
        regret, regret_error: the longer solve's regret less the other's, the mean, and its standard error.
        kept: in how many logs one kept its promise and the other did not.
        warned: in how many logs one was called sound and the other was not.
    """

    logs: int
    stated: float
    stated_largest: float
    regret: float
    regret_error: float
    kept: int
    warned: int


def thrift(records: Sequence[dict[str, Any]]) -> Thrift | None:
    """The cheaper solves held against the longer ones; None where fewer than two logs were solved both ways."""
    places = ("environment", "steps", "candidate", "log")
    cheap = {tuple(record[place] for place in places): record for record in records if not record.get("full")}
    longer = [record for record in records if record.get("full")]
    pairs = [(record, cheap[key]) for record in longer if (key := tuple(record[place] for place in places)) in cheap]
    if len(pairs) < 2:
        return None
    stated = np.array([(one["stated"] - other["stated"]) / other["stated_error"] for one, other in pairs])
    regret = np.array([one["regret"] - other["regret"] for one, other in pairs])
    return Thrift(
        logs=len(pairs),
        stated=float(stated.mean()),
        stated_largest=float(np.abs(stated).max()),
        regret=float(regret.mean()),
        regret_error=float(regret.std(ddof=1) / math.sqrt(len(pairs))),
        kept=sum(one["kept"] != other["kept"] for one, other in pairs),
        warned=sum((one["warning"] == "sound") != (other["warning"] == "sound") for one, other in pairs),
    )
