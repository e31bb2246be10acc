"""The stress family with its factors declared at random: the model's belief about neighbours is wrong here.

PYTHONPATH=benchmarks fsc bench decisions --worlds benchmarks/shuffled_worlds.py --regime simulation,real \
    --methods equal,response-model:auto@screen:6/8
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from synthetic_worlds import shifted

from factored_scaling.bench.worlds import Family, Response, Setting


def renamed(response: Response, order: NDArray[np.int64]) -> Response:
    """The same response with its factors declared in another order."""
    back = np.argsort(order)
    return lambda demos: response(demos[..., order])[..., back]


def shuffled(setting: Setting, rng: np.random.Generator) -> Response:
    """Data of one factor repair the trials of another, anywhere in the list."""
    return renamed(shifted(setting, rng), rng.permutation(setting.count))


families = [Family("shuffled", shuffled)]
