"""Locate a run's episodes in the study's dataset. Every trainer does this before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from factored_scaling.data.lerobot.dataset import LerobotDataset


def found_in(root: Path, ids: Sequence[str]) -> tuple[LerobotDataset, list[int]]:
    """The opened dataset and the numbers of the episodes in it; an error if any are missing."""
    from factored_scaling.data.lerobot.dataset import LerobotDataset
    from factored_scaling.data.lerobot.identity import indices_of

    dataset = LerobotDataset.open(root.resolve())  # `study/../recordings` is hard to read in an error
    return dataset, indices_of(dataset, ids)
