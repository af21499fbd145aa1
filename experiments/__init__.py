"""Experiments: one folder a paper, one module a figure or table, each runnable with
`python -m`.
"""
