"""What a trainer's program writes of its policy: result.json, and embeddings beside it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.cli.corpus.kinds import GONE, Case, Instead, at, content, instead, jsons, nested, raw, texts

GOOD = {
    "policy": "weights",
    "scores": {"lighting": [1, 0], "camera_pose": {"mean": 0.5, "trials": 10}},
    "trials": [{"key": "k", "score": 1, "factor": "lighting", "setting": "dim", "note": "slipped"}, {"score": 0}],
    "metrics": {"loss": 0.1},
    "embeddings": "embeddings.npz",
}
FACTORS = ("camera_pose", "lighting")
ROWS = np.random.default_rng(0).normal(size=(4, 3))
ARRAYS = {"trained": ROWS, "held_out": ROWS, "factors": np.array(["lighting", "camera_pose", "", "nominal"])}

RESULT: dict[str, Case] = {
    **{name: case for name, case in texts("result.json").items() if name != "missing"},
    **jsons("metrics.loss", "result.json"),
    "unknown key": Case(at("notes", 1), "belongs in `metrics`"),
    "score for scores": Case(at("score", 0.5), "unknown key 'score'; did you mean scores?"),
    "policy a number": Case(at("policy", 3), "policy: expected a path"),
    "metrics a list": Case(at("metrics", [1]), "metrics: expected an object"),
    "metrics NaN": Case(raw("metrics.loss", "NaN"), "not finite"),
    "metrics deep": Case(nested("metrics.loss", 150), "nested deeper than"),
    "trials an object": Case(at("trials", {"a": 1}), "expected a list of trials"),
    "trials null": Case(at("trials", None), "expected a list of trials"),
    "trial a number": Case(at("trials.0", 1), "trials[0]: expected an object"),
    "trial's key unknown": Case(at("trials.0.scores", 1), "did you mean score?"),
    "trial's key a number": Case(at("trials.0.key", 3), "trials[0]"),
    "trial's key empty": Case(at("trials.0.key", ""), "needs a key"),
    "trial's score missing": Case(at("trials.0.score", GONE), "trials[0]"),
    "trial's score a text": Case(at("trials.0.score", "1"), "must lie in [0, 1]"),
    "trial's score above": Case(at("trials.0.score", 45), "write 45% as 0.45"),
    "trial's score NaN": Case(raw("trials.0.score", "NaN"), "must lie in [0, 1]"),
    "trial's factor unknown": Case(at("trials.0.factor", "lihgting"), "did you mean lighting?"),
    "trial's factor nominal": Case(at("trials.0.factor", "nominal"), "leave trials of the nominal scene out"),
    "trial's factor a list": Case(at("trials.0.factor", ["lighting"]), "expected a text"),
    "trial's note null": Case(at("trials.0.note", None), "expected a text"),
    "scores a text": Case(at("scores", "0.5"), "expected a score"),
    "scores null": Case(at("scores", None), "expected a score"),
    "scores unknown": Case(at("scores.lihgting", 0.5), "did you mean lighting?"),
    "scores above": Case(at("scores.lighting", 45), "[0, 1]"),
    "scores a bool": Case(at("scores.lighting", True), "scores.lighting"),
    "scores NaN": Case(raw("scores.lighting", "NaN"), "[0, 1]"),
    "scores of texts": Case(at("scores.lighting", ["1"]), "must lie in [0, 1]"),
    "scores of lists": Case(at("scores.lighting", [[1]]), "must lie in [0, 1]"),
    "mean missing": Case(at("scores.camera_pose.mean", GONE), "expected a score"),
    "mean a text": Case(at("scores.camera_pose.mean", "0.5"), "[0, 1]"),
    "mean of 0": Case(at("scores.camera_pose.trials", 0), "at least 1"),
    "mean of a text": Case(at("scores.camera_pose.trials", "10"), "a whole number"),
    "mean with more": Case(at("scores.camera_pose.std", 0.1), "expected a score"),
    "embeddings a number": Case(at("embeddings", 3), "embeddings: expected a path"),
    "embeddings elsewhere": Case(at("embeddings", "nowhere.npz"), "No such file"),
}


def archive(**other: Any) -> bytes:
    """The good arrays as an .npz file, with others instead; None leaves one out."""
    out = io.BytesIO()
    arrays = {name: array for name, array in {**ARRAYS, **other}.items() if array is not None}
    np.savez(out, **arrays)
    return out.getvalue()


def arrays(**other: Any) -> Callable[[bytes], bytes]:
    return content(archive(**other))  # type: ignore[return-value]


def members(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, data in files.items():
            packed.writestr(f"{name}.npy", data)
    return out.getvalue()


HUGE = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000, 100), }".ljust(
    117
)
EMBEDDINGS: dict[str, Case] = {
    "a folder": Case(instead(Instead.FOLDER), "embeddings"),
    "empty": Case(content(b""), "cannot be read"),
    "text": Case(content("hello"), "cannot be read"),
    "cut off": Case(lambda data: data[:-50], "cannot be read"),
    "damaged": Case(lambda data: data[:150] + b"\xff" * 20 + data[170:], "cannot be read"),
    "no arrays": Case(content(members(trained=b"abc", held_out=b"abc")), "expected rows of numbers"),
    "of a terabyte": Case(content(members(trained=HUGE + b"\n", held_out=HUGE + b"\n")), "cannot be read"),
    "pickled": Case(arrays(trained=np.array([None, 1], dtype=object)), "cannot be read"),
    "trained missing": Case(arrays(trained=None), "no array 'trained'"),
    "held_out missing": Case(arrays(held_out=None), "no array 'held_out'"),
    "trained empty": Case(arrays(trained=np.zeros((0, 3))), "expected rows of numbers"),
    "trained texts": Case(arrays(trained=np.array([["a"]])), "expected rows of numbers"),
    "trained bools": Case(arrays(trained=np.ones((4, 3), bool)), "expected rows of numbers"),
    "trained complex": Case(arrays(trained=np.ones((4, 3), complex)), "expected rows of numbers"),
    "trained flat": Case(arrays(trained=np.zeros(4)), "finite rows"),
    "trained a number": Case(arrays(trained=np.array(3.0)), "embeddings"),
    "trained NaN": Case(arrays(trained=np.full((4, 3), np.nan)), "finite rows"),
    "trained huge": Case(arrays(trained=np.full((4, 3), 1e300)), "expected numbers from"),
    "wider than the other": Case(arrays(held_out=np.zeros((4, 7))), "embeddings"),
    "factors short": Case(arrays(factors=np.array(["lighting"])), "1 factors for 4 rows"),
    "factors unknown": Case(arrays(factors=np.array(["lihgting"] * 4)), "did you mean lighting?"),
    "factors numbers": Case(arrays(factors=np.arange(4)), "unknown factor '0'"),
    "factors nested": Case(arrays(factors=np.array([["lighting"]] * 4)), "expected one name per row"),
}
