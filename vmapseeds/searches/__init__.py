"""Searches of hyperparameters: what may be drawn (`spaces`), the campaign of many searches
side by side (`searching`), and the trials that a folder holds (`trials`).

Samplers of optuna need the extra `vmapseeds[search]`.
"""
