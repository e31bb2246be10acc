"""Several policies behind one server, each under its label, so that operators cannot identify them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from factored_scaling.core.checks import named
from factored_scaling.errors import InvalidInput, PolicyError, UnknownName
from factored_scaling.serving.server import Served, Session
from factored_scaling.serving.wire import flag

KIND = "factored-scaling policies by label"


@runtime_checkable
class Closing(Protocol):
    """A policy that holds resources."""

    def close(self) -> None:
        """Release them."""
        ...


class ServedByLabel:
    """Loads each policy on first use. The key `policy` of an observation names it.

    At most `keep` policies stay in memory (None: all of them); the least recently used one is removed.
    """

    def __init__(self, loaders: Mapping[str, Callable[[], Served]], keep: int | None = None) -> None:
        self._loaders = dict(loaders)
        self._keep = keep
        self._loaded: dict[str, Served] = {}

    @property
    def metadata(self) -> dict[str, Any]:
        """The labels, in an order that does not depend on the policies."""
        return {"kind": KIND, "policies": sorted(self._loaders)}

    def session(self) -> LabelledSession:
        """One connection, which may use different policies."""
        return LabelledSession(self)

    def policy(self, label: object) -> Served:
        """The policy with this label."""
        name = named(label)
        if name not in self._loaders:
            raise UnknownName(name, sorted(self._loaders), kind="label", where="observation.policy")
        loaded = self._loaded.pop(name, None)
        while self._keep is not None and len(self._loaded) >= self._keep:
            oldest = self._loaded.pop(next(iter(self._loaded)))
            if isinstance(oldest, Closing):
                oldest.close()
        self._loaded[name] = loaded if loaded is not None else self._loaders[name]()
        return self._loaded[name]


class LabelledSession:
    """Continues a policy's episode until another policy or a `reset` is requested."""

    def __init__(self, policies: ServedByLabel) -> None:
        self._policies = policies
        self._policy: Served | None = None
        self._session: Session | None = None

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer of the policy that `policy` names; without an observation, the policy is only loaded."""
        rest = {key: value for key, value in observation.items() if key not in ("policy", "reset")}
        label = observation.get("policy", "")
        try:
            policy = self._policies.policy(label)
            if self._session is None or policy is not self._policy or flag(observation, "reset"):
                self._policy, self._session = policy, policy.session()
            return self._session.infer(rest) if rest else {"ready": True}
        except InvalidInput:
            raise
        except Exception:
            traceback.print_exc()  # only in the server's log: it may name the run, which operators must not see
            hint = "see what the server printed"
            raise PolicyError("the policy failed", where=f"policy {label}", hint=hint) from None
