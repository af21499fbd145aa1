"""Faults that a campaign must survive, each one command. The results are in
RESULTS.md beside this file.
"""
