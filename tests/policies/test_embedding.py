from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factored_scaling.core.proxy import cosine_similarities, nearest_mean
from factored_scaling.data.frames import FrameTable
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import load_policy, train_diffusion
from factored_scaling.progress import Progress


def test_the_training_side_is_the_first_frames_of_the_policys_own_episodes(
    tmp_path: Path, table: FrameTable, tiny: DiffusionConfig, silent: Progress
) -> None:
    chosen = table.select([table.ids[7], table.ids[2], table.ids[5]])
    train_diffusion(chosen, tiny, 0, tmp_path, silent)
    policy = load_policy(tmp_path)
    subset = table.select(policy.description["episodes"])
    training = policy.embed(subset.images[subset.starts[:-1]])
    np.testing.assert_allclose(training, policy.embed(table.images[table.starts[[7, 2, 5]]]), atol=1e-6)
    # An observation that was trained on is at distance nothing from the training set; another is farther away.
    values = nearest_mean(cosine_similarities(policy.embed(table.images[table.starts[[2, 0]]]), training))
    assert values[0] == pytest.approx(1, abs=1e-5)
    assert values[1] < values[0]
