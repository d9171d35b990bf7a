"""Can a truncation map collapse one cluster and leave the others alone? Decided in rationals, with evidence."""
