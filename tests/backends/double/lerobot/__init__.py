"""Stands in for LeRobot where it is not installed."""
