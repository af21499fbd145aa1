"""Faults that a campaign must survive, each one command. What came out stands in docs/reliability.md."""
