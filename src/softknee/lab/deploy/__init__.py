"""The deploy checks: real tools (onnxruntime, torch-pruning, Marabou) on a model before and after it became ReLU."""

from .check import (
    DeployReport,
    ModelReport,
    check_checkpoint,
    check_several,
    deploy_check,
    deploy_table,
    relu_copy,
    summary_record,
    summary_tables,
)
from .layers import NotRun, Refused

__all__ = [
    "DeployReport",
    "ModelReport",
    "NotRun",
    "Refused",
    "check_checkpoint",
    "check_several",
    "deploy_check",
    "deploy_table",
    "relu_copy",
    "summary_record",
    "summary_tables",
]
