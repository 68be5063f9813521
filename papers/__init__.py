"""What five papers say about activation functions, and what we found: claims that are computed, findings by training.

One folder a paper: its mathematical claims (`claims.py`), what it found by training (`findings.py`), the recipes and
the records of our studies, and its page. Everything else here judges and writes the pages.

    python -m papers                  # check every mathematical claim
    python -m papers --empirical      # judge the findings by the committed records
"""
