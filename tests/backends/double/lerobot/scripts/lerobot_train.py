"""What lerobot-train prints, takes and leaves, without any training: options, log lines, checkpoints, resume."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def _shape(feature: dict[str, Any]) -> list[int]:
    """Pictures channel first, as policies want them."""
    shape: list[int] = feature["shape"]
    return [shape[2], *shape[:2]] if feature["dtype"] in ("image", "video") else shape


def main() -> None:
    given = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
    resuming = given.get("resume") == "true"
    if resuming:
        given = json.loads(Path(given["config_path"]).read_text())
    out = Path(given["output_dir"])
    if out.exists() and not resuming:
        sys.exit(f"FileExistsError: Output directory {out} already exists and resume is False.")
    info = json.loads((Path(given["dataset.root"]) / "meta/info.json").read_text())
    if "policy.pretrained_path" in given:
        there = Path(given["policy.pretrained_path"]).exists()
        print("All keys loaded successfully!" if there else "Returning model without loading pretrained weights")
    print("INFO ot_train.py:290 Creating optimizer and scheduler")
    print(f"INFO ot_train.py:334 dataset.num_episodes={info['total_episodes']}")
    steps, last = int(given["steps"]), out / "checkpoints/last"
    first = int(last.resolve().name) if resuming else 0
    for step in range(first + 1, steps + 1):
        time.sleep(float(os.environ.get("DOUBLE_PAUSE", "0")))
        bar = f"Training: {step - first}/{steps - first} [00:01<00:00,  3.42step/s]"
        print(f"\r{bar}INFO step:{step} smpl:16 ep:1 epch:0.36 loss:{1 / step:.3f} grdn:9.4 lr:8.0e-07", flush=True)
        if step % int(given["save_freq"]) == 0 or step == steps:
            print(f"INFO ot_train.py:455 Checkpoint policy after step {step}", flush=True)
            folder = out / f"checkpoints/{step:06d}"
            (folder / "pretrained_model").mkdir(parents=True)
            shapes = {name: _shape(feature) for name, feature in info["features"].items()}
            seen = {name: shape for name, shape in shapes.items() if name.startswith("observation.")}
            made = {"action": shapes["action"]}
            config = {"type": given["policy.type"], "input_features": seen, "output_features": made, "device": "cpu"}
            (folder / "pretrained_model/config.json").write_text(json.dumps(config))
            (folder / "pretrained_model/model.safetensors").write_text("")
            (folder / "pretrained_model/train_config.json").write_text(json.dumps(given))
            last.unlink(missing_ok=True)
            last.symlink_to(folder.name)
    if "DOUBLE_LOSES" in os.environ:
        last.unlink()
    print("INFO ot_train.py:529 End of training")


if __name__ == "__main__":
    main()
