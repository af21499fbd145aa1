"""Store the results of a campaign: folders of named arrays of runs, on a disk or
behind a URL.

A folder holds a description (JSON, opaque to this package), a plan (the runs table and
arrays of examples), and arrays with the results of each run: large ones in a Zarr v3
group, small ones in records. Runs are written in blocks. A block's record is written last, and it alone
says which runs are done. See `layout` for the format of a folder.

Modules here import only each other, `vmapseeds.errors` and `vmapseeds.machine`. They
know nothing of recipes, training, lanes or statistics. `vmapseeds.results.description`
says what a recipe's campaign keeps.
"""
