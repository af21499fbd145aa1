"""Many runs: what is left to train, on which devices and how wide, checkpoints, several processes, hosts and Ray.

May import everything but `reports`.
"""
