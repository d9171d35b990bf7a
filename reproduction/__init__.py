"""What only the reproduction of the five papers needs: claims, errata, the atlas. Not part of the wheel.

In: the public functions of `lawful`. Out: a verdict for each claim (`lawful reproduce`, run by the tests), and the
Markdown pages of claims, errata and the atlas.
"""
