"""Measurements: functions that return typed records, and the one schema those records have."""

from ..files import WriteError, write_whole
from .activity import Activity, SiteActivity, activity
from .calibration import Bin, expected_calibration_error, reliability
from .edge import Edge
from .entropy import SiteEntropy, entropies
from .estimate import Estimate, Score
from .gradients import GradientNorms, Norms, gradient_norms
from .hardness import HardnessProfile, HardnessTrace, SiteHardness, drift, hardness_profile, spearman
from .machine import Hardware, Versions
from .prediction import PredictionDifference, prediction_difference
from .propagation import Propagation, propagation
from .rate import Rate, SiteRate, rate
from .record import Quantity, Record, RecordError, without_paths
from .regression import mse, psnr, r2, ssim
from .scores import accuracy, auc, generalisation_gap, log_loss, ranking_loss
from .significance import Comparison, compare_each, compare_sets, holm
from .trajectory import ParameterPoint, ParameterTrace

__all__ = [
    "Activity",
    "Bin",
    "Comparison",
    "Edge",
    "Estimate",
    "GradientNorms",
    "HardnessProfile",
    "HardnessTrace",
    "Hardware",
    "Norms",
    "ParameterPoint",
    "ParameterTrace",
    "PredictionDifference",
    "Propagation",
    "Quantity",
    "Rate",
    "Record",
    "RecordError",
    "Score",
    "SiteActivity",
    "SiteEntropy",
    "SiteHardness",
    "SiteRate",
    "Versions",
    "WriteError",
    "accuracy",
    "activity",
    "auc",
    "compare_each",
    "compare_sets",
    "drift",
    "entropies",
    "expected_calibration_error",
    "generalisation_gap",
    "gradient_norms",
    "hardness_profile",
    "holm",
    "log_loss",
    "mse",
    "prediction_difference",
    "propagation",
    "psnr",
    "r2",
    "ranking_loss",
    "rate",
    "reliability",
    "spearman",
    "ssim",
    "without_paths",
    "write_whole",
]
