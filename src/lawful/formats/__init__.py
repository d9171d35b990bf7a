"""Bytes in and out: one file per format, both ways; nothing here knows what an operator means.

In: paths and bytes, never trusted. Out: arrays, graphs and questions (boxes, data, specifications).
"""
