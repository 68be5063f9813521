"""The papers' language experiments: models, preference data, SFT and DPO, perplexity."""
