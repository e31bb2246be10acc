"""The runner: workers that lease runs, train, measure and record them, and survive being killed.

`run.py` is where a study's runs are carried out, `events.py` what is said meanwhile; `executors` start workers.
"""
