"""What stays of a campaign: folders of named arrays of runs, on a disk or behind a URL.

A folder is a Zarr v3 group with a description that is JSON and opaque here, a table of runs (columns by their names),
arrays of what came of each run, and arrays of examples. Runs are written in blocks; a block's record, written last,
says which runs are done, and nothing else does. See `layout` for what is in a folder.

Modules here import each other, `vmapseeds.mistakes` and `vmapseeds.machine`: they know of no recipe, training, lane or
statistic. `vmapseeds.results.description` says what a recipe's campaign keeps.
"""
