"""Campaigns: which runs are left to train, devices and lane widths, checkpoints,
several processes, hosts and Ray.

May import every package except `reports`.
"""
