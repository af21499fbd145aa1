"""Faults that a campaign must survive, each one command. The results are in
docs/reliability.md.
"""
