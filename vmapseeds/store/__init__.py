"""Store the results of a campaign: folders of named arrays of runs, on a disk or
behind a URL.

A folder is a Zarr v3 group. It holds a description (JSON, opaque to this package), the
runs table (one array per column), arrays with the results of each run, and arrays of
examples. Runs are written in blocks. A block's record is written last, and it alone
says which runs are done. See `layout` for the format of a folder.

Modules here import only each other, `vmapseeds.mistakes` and `vmapseeds.machine`. They
know nothing of recipes, training, lanes or statistics. `vmapseeds.results.description`
says what a recipe's campaign keeps.
"""
