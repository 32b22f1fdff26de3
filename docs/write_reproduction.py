"""Put a run folder of `prudent reproduce all` into docs/reproduction.md: `python docs/write_reproduction.py FOLDER`.

The page's tables stand between marks such as `<!-- table1 -->` and `<!-- /table1 -->`; the words around them are
written by hand. Records and figures the page shows are stored beside it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from prudent_studies.pages import WORDS, item_table

DOCS = Path(__file__).parent
STORED = DOCS / "reproduction"
PICTURES = DOCS / "images" / "reproduction"
ITEMS = ("table1", "table2", "table3", "variants", "theory")


def markdown_table(item: str, records: list[dict]) -> str:
    """The item's table, as the command prints it."""
    columns, rows = item_table(item, records)
    lines = [
        f"| {' | '.join(columns)} |",
        f"|{'|'.join('---' if column in WORDS else '--:' for column in columns)}|",
        *(f"| {' | '.join(cell or ' ' for cell in row['cells'])} |" for row in rows),
    ]
    return "\n".join(lines)


def filled(page: str, read: Callable[[str], list[dict]]) -> str:
    """The page with every table made again."""
    for item in ITEMS:
        pattern = re.compile(rf"(<!-- {item} -->\n).*?(<!-- /{item} -->)", re.DOTALL)
        assert pattern.search(page), f"the page has no marks for {item}"
        table = markdown_table(item, read(item))
        page = pattern.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", page)
    return page


def stored(item: str) -> list[dict]:
    """The records the page was written from."""
    return json.loads((STORED / f"{item}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    STORED.mkdir(exist_ok=True)
    for name in (*ITEMS, "manifest"):
        shutil.copy(folder / f"{name}.json", STORED / f"{name}.json")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for picture in sorted((folder / "figures").glob("*.png")):
        shutil.copy(picture, PICTURES / picture.name)
    page = DOCS / "reproduction.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), stored), encoding="utf-8")
