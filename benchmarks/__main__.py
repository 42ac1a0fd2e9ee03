"""Run the named benchmarks, or all of them, each in its own process: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# The benchmarks gpu and parsoid are left out, since they need a folder as argument.
NOT_BENCHMARKS = ("__init__", "__main__", "measure", "material", "gpu", "parsoid")


def names() -> list[str]:
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in stems if name not in NOT_BENCHMARKS and not name.startswith("_"))


def main(selected: list[str]) -> int:
    # The exit status is 0 if all benchmarks ran.
    unknown = [name for name in selected if name not in names()]
    if unknown:
        print(f"error: no benchmark is called {unknown[0]!r}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    failed = [
        name for name in selected or names() if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode
    ]
    if failed:
        print(f"error: did not run to the end: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
