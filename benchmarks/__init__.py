"""Benchmarks: what the hot paths cost, beside a baseline in the same run."""
