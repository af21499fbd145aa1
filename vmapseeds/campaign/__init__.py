"""Campaigns: which runs are left to train, devices and lane widths, checkpoints,
several processes, executors.

May import every package except `reports`.
"""
