"""The stress family with its factors declared at random: the model's belief about neighbours is wrong here.

fsc bench decisions --worlds benchmarks/shuffled_worlds.py --methods equal,surface:auto@screen:6/8
"""

from __future__ import annotations

import numpy as np

from factored_scaling.bench.families import shifted
from factored_scaling.bench.worlds import Family, Floats, Setting, Surface


def shuffled(setting: Setting, rng: np.random.Generator) -> Surface:
    """Data of one factor repair the trials of another, anywhere in the list."""
    inner = shifted(setting, rng)
    names = rng.permutation(setting.count)
    back = np.argsort(names)

    def surface(demos: Floats) -> Floats:
        return inner(demos[..., names])[..., back]

    return surface


families = [Family("shuffled", shuffled)]
