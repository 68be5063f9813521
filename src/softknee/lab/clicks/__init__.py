"""The click models of the SmeLU paper, which recipes name as "click_model".

model.py     the columns of Criteo's rows and the layers on top of them, for tables 1 to 3 and figure 3
by_name.py   the same from words alone

Progressive validation, by which figure 3 is judged, is `training.progressive` of a recipe (`train.progressive`).
"""

from .model import ClickInputs, click_model

__all__ = ["ClickInputs", "click_model"]
