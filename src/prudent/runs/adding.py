"""What is found of a run later on, added to its record and its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..files import locked, settle
from ..report import SolutionRecord
from .checkpoint import Saved, checkpoint_from, episode_seed
from .folder import CHECKPOINT, FILES, PROOF, REPORT, read_record, read_run, record_files, require_run
from .reporting import add_to_run, can_report, page_file

Result = TypeVar("Result")


def added(
    folder: Path,
    find: Callable[[Saved, dict[str, Any], SolutionRecord], Result],
    kept: Callable[[Result], tuple[dict[str, Any], dict[str, bytes]]],
    trust: bool,
    wait: bool,
) -> Result:
    """What is found of a run, once it is in its folder.

    Args:
        folder: of the run, locked meanwhile.
        find: from its checkpoint, the arguments of `solve` and its record.
        kept: what is found, as fields of the record and as other files.
        trust: import the code that the problem's `family` names.
        wait: until no other process changes the folder; refused otherwise if one does.
    """
    require_run(folder)
    with locked(folder, wait):
        settle(folder, FILES)
        read = read_run(folder, (CHECKPOINT,), apart=(PROOF,))
        saved = checkpoint_from(read.contents[CHECKPOINT], folder / CHECKPOINT, trust)
        # Before the work: what cannot be added to is refused at once.
        record = read_record(folder)
        arguments = saved.case.arguments()
        arguments["seed"] = episode_seed(arguments["seed"], saved.episode)
        found = find(saved, arguments, record)
        fields, files = kept(found)
        record = record.model_copy(update=fields)
        contents = record_files(record) | files
        if (folder / REPORT).is_file() and can_report():
            contents[REPORT] = page_file(record)
        add_to_run(folder, contents)
    return found
