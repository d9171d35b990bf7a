"""The conserved quantities of spaces: values, and derivatives along a direction, at any parameters.

`families` has one class for each kind of continuous group, and those that are made of rows of parameters.
"""
