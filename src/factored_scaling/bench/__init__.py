"""Worlds with known answers, and how well each rule decides in them."""
