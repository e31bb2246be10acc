"""Benchmarks: synthetic worlds with known answers, and the regret of each rule in them."""
