"""The Bayesian response model: how success depends on the demonstrations, and what to collect given that."""
