"""Standalone programs that run in other Python environments.

They have a separate folder because Python first looks for modules beside a program: next to our `lerobot.py`, it would
not find LeRobot.
"""
