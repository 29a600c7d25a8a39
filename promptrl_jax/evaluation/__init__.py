"""Scores, intervals, paired tests, reports and plots; see `report`."""
