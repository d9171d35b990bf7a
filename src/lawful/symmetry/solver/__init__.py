"""From demands to what is left of the group.

Labels are partitioned into cells that may mix (`cells`); coordinates that stand alone have logarithms of scales, tied
by linear equations whose integer solutions are exact (`nullspace`, `logarithms`). `gauge_solution` and `shift_solution`
put both together. Nothing here knows a program, a parameter or an operator.
"""
