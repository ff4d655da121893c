"""The whole attack: `make attack`, or `python -m tests.adversarial` with src/ on the path.

ATTACK=0.1 in the environment runs a tenth of it. ONLY="problems files" names the parts: problems,
files, inputs, kills, long. The table is printed and written to mossp-attack/.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.adversarial import files, inputs, kills, long_process, problems, table
from tests.adversarial.table import Row, share

FOLDER = Path("mossp-attack")
PROBLEMS, KILLS, FULL_DISKS, COMPILING, SOLVES = 2000, 32, 8, 4, 500
FILES = {
    "LIBSVM": 6000, "CSV": 3000, "Parquet": 2000, "expression": 6000,
    "model": 1000, "column name": 100, "result": 1500, "checkpoint": 600,
}  # fmt: skip

Part = Callable[[], list[Row]]


def together(lanes: list[list[Part]]) -> list[Row]:
    """Lanes side by side, the parts of each one after the other; a part that fails is a failure."""
    found: dict[tuple[int, int], list[Row]] = {}

    def run(lane: int) -> None:
        for number, part in enumerate(lanes[lane]):
            began = time.monotonic()
            try:
                found[lane, number] = part()
            except Exception as error:
                broken = Row(part.__name__, "the driver itself", 1)
                broken.failures.append(f"{type(error).__name__}: {error}")
                found[lane, number] = [broken]
            print(f"[{time.monotonic() - began:.0f} s]\n{table.markdown(found[lane, number])}")
            print(table.details(found[lane, number], most=5), flush=True)

    threads = [threading.Thread(target=run, args=(lane,)) for lane in range(len(lanes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [row for key in sorted(found) for row in found[key]]


def main() -> int:
    began = time.monotonic()
    wanted = os.environ.get("ONLY", "problems files inputs kills long").split()
    more: dict[str, str] = {}

    def random_problems() -> list[Row]:
        rows, more["families"] = problems.attack(share(PROBLEMS))
        return rows

    def hostile_files() -> list[Row]:
        each = {kind: share(count) for kind, count in FILES.items()}
        return files.attack(each, files.BOMBS)

    def hostile_arguments() -> list[Row]:
        return inputs.attack(share(len(inputs.cases())))

    def kills_and_full_disks() -> list[Row]:
        return kills.attack(share(KILLS, 4), share(FULL_DISKS), share(COMPILING))

    def a_long_process() -> list[Row]:
        return long_process.attack(share(SOLVES, 30))

    parts = {
        "problems": random_problems, "files": hostile_files, "inputs": hostile_arguments,
        "kills": kills_and_full_disks, "long": a_long_process,
    }  # fmt: skip
    # Two processes of its own; the others then share the machine in two lanes.
    rows = together([[parts["problems"]]]) if "problems" in wanted else []
    lanes = [["long", "inputs"], ["files", "kills"]]
    rows += together([[parts[name] for name in lane if name in wanted] for lane in lanes])
    table.save(rows, more, FOLDER)
    print("\n".join(["", *more.values(), "", table.markdown(rows), table.details(rows)]))
    print(f"\n{time.monotonic() - began:.0f} s; {FOLDER / 'attack.md'} has all of it.")
    return 1 if any(row.unexplained for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
