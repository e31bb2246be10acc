"""Several policies behind one server, each under its label: nobody at the robot learns which is which."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from factored_scaling.errors import InvalidInput, PolicyError, UnknownName
from factored_scaling.serving.server import Served, Session

KIND = "factored-scaling policies by label"


class UnknownLabel(UnknownName):
    """A label under which no policy is served."""

    kind = "label"


class ServedByLabel:
    """Loads each policy when it is first asked for. An observation says under `policy` which one is meant."""

    def __init__(self, loaders: Mapping[str, Callable[[], Served]]) -> None:
        self._loaders = dict(loaders)
        self._loaded: dict[str, Served] = {}

    @property
    def metadata(self) -> dict[str, Any]:
        """The labels, in an order that tells nothing."""
        return {"kind": KIND, "policies": sorted(self._loaders)}

    def session(self) -> LabelledSession:
        """One connection; it may ask different policies."""
        return LabelledSession(self)

    def policy(self, label: object) -> Served:
        """The policy with this label."""
        if label not in self._loaders:
            raise UnknownLabel(str(label), sorted(self._loaders), where="observation.policy")
        name = str(label)
        if name not in self._loaded:
            self._loaded[name] = self._loaders[name]()
        return self._loaded[name]


class LabelledSession:
    """Goes on with a policy's episode until another one, or a `reset`, is asked for."""

    def __init__(self, policies: ServedByLabel) -> None:
        self._policies = policies
        self._label: object = None
        self._session: Session | None = None

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of the policy that `policy` names."""
        rest = {key: value for key, value in observation.items() if key not in ("policy", "reset")}
        label = observation.get("policy", "")
        try:
            if self._session is None or label != self._label or observation.get("reset"):
                self._session = self._policies.policy(label).session()
                self._label = label
            return self._session.infer(rest)
        except InvalidInput:
            raise
        except Exception:
            traceback.print_exc()  # for who runs the server: it may name the run, which operators are not to know
            hint = "see what the server printed"
            raise PolicyError("the policy failed", where=f"policy {label}", hint=hint) from None
