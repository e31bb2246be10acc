"""Choosing from a pool: demonstrations that exist already, instead of a budget to collect them with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import nested_order
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData


def without(pool: Dataset, known: Collection[str]) -> Dataset:
    """The pool without episodes that the study has already."""
    held = set(known)
    return Dataset(tuple(episode for episode in pool.episodes if episode.id not in held))


def capped(spec: StudySpec, pool: Dataset) -> StudySpec:
    """The spec with every factor's cap lowered to what the pool holds of it. What collecting costs is of no matter."""
    factors = []
    for factor in spec.factors:
        held = pool.count(factor.name)
        if factor.minimum > held:
            what = f"the pool holds {held} demos of {factor.name}, fewer than its minimum of {factor.minimum}"
            raise InvalidInput(what, where=f"factors.{factor.name}.minimum")
        factors.append(replace(factor, cost=1.0, cap=held if factor.cap is None else min(factor.cap, held)))
    if not any(factor.cap for factor in factors):
        raise NotEnoughData("the pool holds no demo that varies a factor of the study", hint=", ".join(spec.names))
    return spec.changed(factors=factors)


def chosen_episodes(pool: Dataset, allocation: Mapping[str, int], seed: int = 0) -> dict[str, tuple[str, ...]]:
    """The episodes to add, by factor. Of one factor they are alike to the method: a fixed shuffle decides.

    For one seed a larger allocation contains a smaller one of the same factor.
    """
    return {name: nested_order(pool, name, seed)[:count] for name, count in allocation.items()}
