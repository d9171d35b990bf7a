"""The verdict on two aligned checkpoints: equal, different or undecided, with its evidence.

In come aligned tensors; out come the distance of every entry, the certificate of a copy, or an input on which the
outputs differ.
"""
