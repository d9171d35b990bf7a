"""Turns results into text, figures and pages; computes nothing."""
