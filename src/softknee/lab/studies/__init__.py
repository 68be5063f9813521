"""Studies: a recipe is read, becomes trials, each trial an outcome in the run store, and all outcomes a report.

recipe.py  ->  trial.py, trials.py               what a study asks for, and what is run at once
reading    ->  running   ->  store  ->  report   who makes one from the other
"""
