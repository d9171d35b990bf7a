"""One function a subcommand: each takes whatever `lawful.open` takes and returns a frozen result.

In: networks, checkpoints and questions as a user says them. Out: results that `report` shows and `cli` prints;
`lawful/__init__.py` gives these functions their public names.
"""
