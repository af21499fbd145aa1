"""Read a results folder as xarray; merge, import, measure and export; the table of
statistics. May import `store`, `training`, `data` and `stats`.
"""
