"""The data sets of the papers' experiments, each read from its standard files in the data folder."""
