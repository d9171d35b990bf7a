"""Training as motion of the data: truncation maps and their gradient flow (P2).

`cumulative` reads a network as a chain of truncations and `census` counts what it cuts. `field` has the velocities,
`integrate` follows them from sign change to sign change (`crossing`, `boundary`), `motion` runs a data set. `closed`
and `standard` hold what is known in closed form, `finite_time` what is known beforehand. `separation` and `construct`
build networks of zero loss, and `verify` re-checks the certificates. `metrics` measures neural collapse.
"""
