"""What the operators of a program demand of symmetries.

A program is read once (`reading`): the gauge domain follows how every value moves (`motion`) if parameters move along
their axes, and collects what each operator demands of these gauges (`gauges`) and of constant shifts (`shifts`). Rules
are for families of operators: sums and products (`sums`), contractions and convolutions (`contractions`), attention
(`scores`). Nothing is solved here, and every rule keeps to a subgroup of the true one.
"""
