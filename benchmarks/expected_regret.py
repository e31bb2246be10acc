"""The table behind `fsc plan`: regret to expect against the number of policies, for every construction.

python benchmarks/expected_regret.py                          prints it, from four studies per start of every table
python benchmarks/expected_regret.py --studies 8 --save       also writes src/factored_scaling/bench/expected.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from factored_scaling.bench.decisions import Cell, Key, Settings, compare, mean

TARGET = Path(__file__).resolve().parents[1] / "src" / "factored_scaling" / "bench" / "expected.json"
TABLES = Path(__file__).resolve().parents[1] / "results" / "tables"
# as `fsc plan` calls them, and as `fsc bench decisions` does
REGIMES = {"simulation": "rollouts", "real": "real"}
FACTORS = (5, 8)
# policies for each number of factors; the last of `one` and `group` are all they have
POLICIES = {
    "screen": ((1, 2, 4, 6, 10), (1, 2, 5, 8, 13)),
    "group": ((7, 10), (9, 13)),
    "one": ((6, 16), (9, 25)),
}


def methods() -> tuple[str, ...]:
    pairs = [(name, five, eight) for name, sides in POLICIES.items() for five, eight in zip(*sides, strict=True)]
    return tuple(f"response-model:auto@{name}:{five}/{eight}" for name, five, eight in pairs)


def rows(cells: dict[Key, Cell], settings: Settings, regime: str, construction: str, factors: int) -> Sequence[object]:
    made = []
    for method in settings.methods:
        chosen = [c for k, c in cells.items() if (k.method, k.regime, k.factors) == (method, regime, factors)]
        if method.startswith(f"response-model:auto@{construction}:"):
            got = mean(chosen)
            made.append([chosen[0].policies, round(got.regret, 4), round(got.error, 4)])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4, help="per start of every table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="also write the table that `fsc plan` reads")
    given = parser.parse_args()
    settings = Settings(
        worlds=str(TABLES),
        count=given.studies,
        methods=("equal", *methods()),
        factors=FACTORS,
        regimes=tuple(REGIMES.values()),
        seed=given.seed,
    )

    def progress(done: int, total: int) -> None:
        print(f"\r{done} of {total} worlds", end="", file=sys.stderr, flush=True)

    cells = compare(settings, given.jobs, progress)
    table = {
        "source": f"python benchmarks/expected_regret.py --studies {given.studies} --seed {given.seed} --save, "
        f"{datetime.date.today().isoformat()}: response model, K = 100, emulators of results/tables",
        "equal": {str(n): round(mean([c for k, c in cells.items() if k.method == "equal" and k.factors == n]).regret, 4)
                  for n in FACTORS},
        "regret": {
            name: {plan: {str(n): rows(cells, settings, regime, plan, n) for n in FACTORS} for plan in POLICIES}
            for name, regime in REGIMES.items()
        },
    }  # fmt: skip
    text = (
        re.sub(r"\[\s+([\d.,\s]+?)\s+\]", lambda row: f"[{' '.join(row[1].split())}]", json.dumps(table, indent=1))
        + "\n"
    )
    print(f"\n{text}", end="")
    if given.save:
        TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
