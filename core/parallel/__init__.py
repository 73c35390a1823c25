"""Runs of several processes: how they start, meet, exchange, and end."""
