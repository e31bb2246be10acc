"""Kinds of the documents that are kept with a study."""

from __future__ import annotations

JOBS = "jobs"  # what was submitted to a scheduler, by the name of its folder
PLAN = "plan"  # the runs that a round planned last
RECOMMENDATION = "recommendation"
REMIX = "remix"
SIMILARITY = "similarity"  # what FSC-Proxy needs of a run's policy
STOP = "stop"  # a request that workers end, until the next `fsc run`
TRAINED = "trained"  # where a run's policy lies and which backend made it
