"""Kinds of documents that are stored with a study."""

from __future__ import annotations

JOBS = "jobs"  # submissions to a scheduler, by the name of their folder
PLAN = "plan"  # the latest planned runs of a round
RECOMMENDATION = "recommendation"
REMIX = "remix"
SIMILARITY = "similarity"  # similarities of a run's policy, for FSC-Proxy
STOP = "stop"  # a request that workers end, until the next `fsc run`
TRAINED = "trained"  # the path of a run's policy and the backend that trained it
