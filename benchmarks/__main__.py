"""Run every benchmark, a table each: ``python -m benchmarks [--quick] [--json DIRECTORY]``."""

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks.measurement import Measurement, exit_beyond, show, write_json

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="DIRECTORY", help="a file a benchmark there")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    arguments = parser.parse_args()
    if arguments.json:
        arguments.json.mkdir(parents=True, exist_ok=True)
    found: list[Measurement] = []
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        rows: list[Measurement] = import_module(f"benchmarks.{file.stem}").run(arguments.quick)
        found += rows
        show(file.stem, rows)
        if arguments.json:
            write_json(str(arguments.json / f"{file.stem}.json"), rows)
    exit_beyond(found)
