"""Build the published policy tables (results/tables) on a machine with a GPU, torch, numpy, scipy and safetensors.

    python scripts/gpu_tables.py OUT pick-place --starts 10 --policies 64 --workers 4

`fsc bench table` does the same for any task; this script holds the settings of the published tables and does not
need the command line. The same command resumes.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
from pathlib import Path

import torch

from factored_scaling.bench.policy_tables import design_table
from factored_scaling.bench.table_builder import TableSettings, build_table
from factored_scaling.machine import processor
from factored_scaling.sim import load_task
from factored_scaling.version import __version__

POLICY = {"preset": "small", "updates": 3600}
SHORT = {"preset": "small", "updates": 1800, "learning_rate": 0.004}  # as good, in half the time
NO_JITTER = {"jitter_light": 0.0, "jitter_saturation": 0.0, "jitter_hue": 0.0}
# Of the ManiSkill settings: a small encoder and U-Net at 96 px. Pick-Place needs what results/recipes found.
MANISKILL = {
    **{"preset": "paper", "image_size": 96, "encoder": "small", "encoder_width": 32, "pool": "flatten"},
    **{"widths": [64, 128], "prediction": "sample", "noise_samples": 4, "learning_rate": 1e-3, "warmup": 300},
}
PULL = {**MANISKILL, "updates": 4000}
PICK = {**MANISKILL, "updates": 6000, "shift": 4, "relative_actions": True}
TABLES = {
    "pick-place": TableSettings("tabletop/pick-place", POLICY, {"initial_states": 12}, 300),
    "pick-place-no-jitter": TableSettings("tabletop/pick-place", {**POLICY, **NO_JITTER}, {"initial_states": 12}, 300),
    "insert": TableSettings("tabletop/insert", POLICY, {"initial_states": 8}, 300),
    "push": TableSettings("tabletop/push", SHORT, {"initial_states": 12}, 300),
    "maniskill-pull-visual": TableSettings("maniskill/pull-visual", PULL, {"initial_states": 3}, 120),
    "maniskill-pick-place": TableSettings("maniskill/pick-place", PICK, {"initial_states": 3}, 120),
}
# Models and constants may be chosen on these; the others are for testing (docs/decisions/0028).
TUNING = ("pick-place", "pick-place-no-jitter")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--starts", type=int, nargs="+", default=[5, 10, 30])
    parser.add_argument("--policies", type=int, default=64, help="of each start")
    parser.add_argument("--work", type=Path, default=Path("/tmp/tables"))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--together", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()

    settings = TABLES[options.table]
    factors = load_task(settings.task).factors
    machine = torch.cuda.get_device_name() if options.device.startswith("cuda") else processor()
    role = "tuning" if options.table in TUNING else "held_out"
    made = {"role": role, "version": __version__, "machine": machine, "date": datetime.date.today().isoformat()}
    if settings.task.startswith("maniskill/"):
        made["renderer"] = os.environ.get("FSC_SIM_RENDERER", "gpu")
    begun = time.monotonic()

    def report(done: int, total: int, note: str = "") -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {done} of {total} {note}", flush=True)

    designs = [design_table(factors, start, options.policies) for start in options.starts]
    compositions = [composition for one_of_each in zip(*designs, strict=True) for composition in one_of_each]
    build_table(
        options.out / options.table,
        settings,
        compositions,
        options.work / options.table,
        report,
        device=options.device,
        at_once=options.together,
        workers=options.workers,
        provenance=made,
    )


if __name__ == "__main__":
    main()
