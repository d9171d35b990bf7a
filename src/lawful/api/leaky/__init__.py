"""Runs of Leaky ResNets (`lawful leaky`): the plan, the folder that a run is kept in and resumed from, its figures."""
