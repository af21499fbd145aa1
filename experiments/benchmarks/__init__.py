"""Benchmarks: vmapseeds beside what a user would pick instead, each one command.
Results: RESULTS.md.
"""
