"""Make the labs' skeletons from their solutions; `--check` only says whether they are in step.

In a cell tagged `solution`, the lines from `# BEGIN SOLUTION what` to `# END SOLUTION` become `...  # TODO: what`.
Cells tagged `solution-only` are left out. Skeletons carry no outputs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

LABS = Path(__file__).parents[1] / "labs"
BODY = re.compile(r"^( *)# BEGIN SOLUTION ?(.*)\n(?:.*\n)*?\1# END SOLUTION *$", re.MULTILINE)


def solutions() -> list[Path]:
    return sorted((LABS / "solutions").glob("L*.ipynb"))


def skeleton(solution: NotebookNode) -> NotebookNode:
    """The notebook that a learner gets.

    Raises:
        ValueError: a solution cell without both marks, or a mark outside a solution cell.
    """
    cells = []
    for cell in solution.cells:
        tags = cell.metadata.get("tags", [])
        if "solution-only" in tags:
            continue
        cell = nbformat.from_dict(cell)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if "solution" in tags:
            cell.source, found = BODY.subn(r"\1...  # TODO: \2", cell.source)
            if not found:
                raise ValueError(f"a solution cell without BEGIN and END SOLUTION: {cell.source[:60]!r}")
            cell.metadata["tags"] = ["todo" if t == "solution" else t for t in tags]
        if "BEGIN SOLUTION" in cell.source or "END SOLUTION" in cell.source:
            raise ValueError(f"a solution would be given away: {cell.source[:60]!r}")
        cells.append(cell)
    made = nbformat.from_dict(solution)
    made.cells = cells
    return made


def text(solution: Path) -> str:
    """The skeleton's file, as it should be."""
    return nbformat.writes(skeleton(nbformat.read(solution, as_version=4))) + "\n"


def main(arguments: list[str]) -> int:
    stale = [s for s in solutions() if (f := LABS / s.name) and not (f.exists() and f.read_text("utf8") == text(s))]
    if "--check" in arguments:
        print("\n".join(f"labs/{s.name} is not in step with its solution" for s in stale) or "labs are in step")
        return bool(stale)
    for solution in stale:
        (LABS / solution.name).write_text(text(solution), encoding="utf8")
        print(f"labs/{solution.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
