"""From demands to what is left of the group.

Labels are partitioned into cells that may mix, and shifts into those that no operation sees (`gauge_solution`);
coordinates that stand alone have logarithms of scales, tied by linear equations whose integer solutions are exact
(`nullspace`). Nothing here knows a program, a parameter or an operator.
"""
