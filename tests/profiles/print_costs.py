"""Print the cost of the profiles, from the file that the option `--costs` writes.

    ./quickstart test --all --costs build/costs.tsv
    .venv/bin/python tests/profiles/print_costs.py build/costs.tsv

The wall time of the quick profile on two cores is about half the processor time of its parallel
part, plus the wall time of the tests that run alone. Measure on an idle machine: on a busy machine
only processor seconds are meaningful, and they do not include the time that a test waits. The last
lines list entries of `quick.toml` that name no test in the file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from profiles import Profiles, beginnings

LISTED = 30


def main(path: str) -> None:
    lists = Profiles.read()
    parts: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    tests: list[tuple[float, float, str, str]] = []
    for line in Path(path).read_text().splitlines():
        used_s, wall_s, profile, node_id = line.split("\t", 3)
        part = f"{profile}, {'alone' if lists.runs_alone(node_id) else 'parallel'}"
        tests.append((float(used_s), float(wall_s), part, node_id))
        for number, value in enumerate((1, float(used_s), float(wall_s))):
            parts[part][number] += value
    for part, (count, used_s, wall_s) in sorted(parts.items()):
        print(f"{part:16} {count:5.0f} tests {used_s:7.1f} processor s {wall_s:7.1f} wall s")
    print(f"the {LISTED} most expensive tests of the quick profile, processor s and wall s:")
    quick = sorted((test for test in tests if test[2].startswith("quick")), reverse=True)
    for used_s, wall_s, part, node_id in quick[:LISTED]:
        print(f"{used_s:7.2f} {wall_s:7.2f} {part:16} {node_id}")
    found = {entry for *_, node_id in tests for entry in beginnings(node_id)}
    for entry in (*lists.alone, *lists.slow):
        if entry not in found:
            print(f"no test of the file: {entry}")


if __name__ == "__main__":
    main(sys.argv[1])
