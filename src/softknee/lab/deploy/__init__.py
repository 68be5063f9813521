"""The deploy checks: real tools (onnxruntime, torch-pruning, Marabou) on a model before and after it became ReLU."""

from .check import deploy_check
from .of_checkpoint import check_checkpoint, relu_copy
from .report import DeployReport, ModelReport
from .summary import check_several, summary_record, summary_tables
from .table import deploy_table
from .tools import NotRun, Refused

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
