"""Modules that compute alike and are written differently, brought to one form.

Fused or split layers, folded norms, tied heads: a proposal says how the tensors of one module are made of those of the
other, and is compared as tensors of one architecture are.
"""
