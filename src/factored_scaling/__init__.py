"""Factored scaling curves: which factor should the next robot demonstrations vary, and how many of each?

from factored_scaling import Results, StudySpec, recommend

spec = StudySpec(factors={"camera_pose": 30, "lighting": 30}, construction="one")
results = Results.from_rows([{"demos": {"camera_pose": 30, "lighting": 10}, "score": 0.4, "trials": 600}, …])
recommend(spec, results, budget=100, strategy="top").allocation
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from factored_scaling.version import __version__

if TYPE_CHECKING:
    from factored_scaling.backends import Backend, Context
    from factored_scaling.core.curves import Curve, fit_power_law
    from factored_scaling.core.dataset import Dataset, Episode
    from factored_scaling.core.design import RunSpec, plan
    from factored_scaling.core.results import Results
    from factored_scaling.core.spec import Combination, Factor, StudySpec
    from factored_scaling.core.trials import Measurement, Result, Trial
    from factored_scaling.errors import FscError, InvalidInput
    from factored_scaling.io.files import read_results, read_study
    from factored_scaling.model.estimate import Estimate
    from factored_scaling.model.posterior import Posterior, fit_posterior
    from factored_scaling.model.recommend import Recommendation, fit_curves, recommend
    from factored_scaling.model.strategies import StrategyInput
    from factored_scaling.runner.queue import Run
    from factored_scaling.study import Study


# Where each exported name lives. Names are loaded when first used, so that importing the package costs nothing.
_HOMES = {
    "Backend": "backends",
    "Combination": "core.spec",
    "Context": "backends",
    "Curve": "core.curves",
    "Dataset": "core.dataset",
    "Episode": "core.dataset",
    "Estimate": "model.estimate",
    "Factor": "core.spec",
    "FscError": "errors",
    "InvalidInput": "errors",
    "Measurement": "core.trials",
    "Posterior": "model.posterior",
    "Recommendation": "model.recommend",
    "Result": "core.trials",
    "Results": "core.results",
    "Run": "runner.queue",
    "RunSpec": "core.design",
    "StrategyInput": "model.strategies",
    "Study": "study",
    "StudySpec": "core.spec",
    "Trial": "core.trials",
    "fit_curves": "model.recommend",
    "fit_posterior": "model.posterior",
    "fit_power_law": "core.curves",
    "plan": "core.design",
    "read_results": "io.files",
    "read_study": "io.files",
    "recommend": "model.recommend",
}

__all__ = [
    "Backend",
    "Combination",
    "Context",
    "Curve",
    "Dataset",
    "Episode",
    "Estimate",
    "Factor",
    "FscError",
    "InvalidInput",
    "Measurement",
    "Posterior",
    "Recommendation",
    "Result",
    "Results",
    "Run",
    "RunSpec",
    "StrategyInput",
    "Study",
    "StudySpec",
    "Trial",
    "__version__",
    "fit_curves",
    "fit_posterior",
    "fit_power_law",
    "plan",
    "read_results",
    "read_study",
    "recommend",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
