"""Studies: a recipe is read, becomes trials, each trial an outcome in the run store, and all outcomes a report.

recipe.py  ->  trial.py  ->  outcome.py          what is asked, what is run at once, what came of it
reading    ->  running   ->  store  ->  report   who makes one from the other
"""
