"""Subcommands about two or many checkpoints: `diff`, `merge`, `find`, `fingerprint`, `canonical`, `rebalance`.

In: whatever `lawful.open` takes. Out: frozen results; `sketches` and `index` keep what they read in one SQLite file.
"""
