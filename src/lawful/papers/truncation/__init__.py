"""Training as motion of the data: truncation maps and their gradient flow (P2).

In come points with labels (`clusters`) or a network (`cumulative` reads it as a chain of truncations). Out come counts
of what each layer cuts (`census`, with the numbers of neural collapse), proofs that clusters can be parted
(`separation`, `separability`), networks of zero loss that are built rather than trained (`construction`), and runs of
the gradient flow (`flow/`). `lawful.verify` re-checks the certificates.
"""
