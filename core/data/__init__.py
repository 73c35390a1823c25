"""Loaders: which samples each rank sees, in which order, and where in them a run stands."""
