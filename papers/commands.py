"""The command that makes each study or record that statements are judged by."""

from __future__ import annotations

from .lambda_gelu.findings import LARGE, SMALL
from .preferences import TABLES
from .runs import command_of_recipe
from .squaf.findings import ALONE, MODES, RATE, TIMES, VGG, WRN

_FOLDER = "papers/squaf/records"
_LANGUAGE = "papers/lambda_gelu/records"
_WIKITEXT = "softknee study wikitext --train wikitext2_train.txt.gz,valid"
# Shorter than the paper's 240 epochs of batches of 64 at 0.05, which are the command's defaults.
_DISTIL = "softknee study distil --data-set cifar-10 --epochs 40 --batch 256 --learning-rate 0.1"
_MODEL = "softknee bench model timm:vit_tiny_patch16_224 --replacing gelu --device cuda --repeats 9 --seconds 1"
_SQUAF = "squaf(k=16, q=0.25, z=gelu, learn=all"
_MODES = f"--swap '{_SQUAF})' --swap '{_SQUAF}, mode=sampled)' --swap '{_SQUAF}, mode=step)' --batch 256"
# Records that a command of its own makes; all others are studies by recipe.
COMMANDS = {
    RATE: f"softknee study rate --json {_FOLDER}/{RATE}",
    ALONE: f"{_DISTIL} --teacher none --student vgg8 --json {_FOLDER}/{ALONE}",
    VGG: f"{_DISTIL} --teacher vgg13 --student vgg8 --only relu,gelu,prelu,silu,swish,squaf --json {_FOLDER}/{VGG}",
    WRN: f"{_DISTIL} --teacher wrn40_2 --student wrn16_2 --json {_FOLDER}/{WRN}",
    TIMES: f"{_MODEL} --swap relu --swap lrelu --swap 'prelu(learn=all)' --swap 'swish(learn=all)' "
    f"--swap 'crrelu(learn=all)' --swap polyrelu --swap polynorm --swap ditac {_MODES} --dtype f32 "
    f"--json {_FOLDER}/{TIMES}",
    MODES: f"{_MODEL} --swap relu {_MODES} --dtype bf16 --json {_FOLDER}/{MODES}",
    SMALL: f"{_WIKITEXT} --layers 6 --width 384 --heads 6 --context 256 --batch 16 --steps 500 --dropout 0.1 "
    f"--recover 60 --no-layerwise --json {_LANGUAGE}/{SMALL}",
    LARGE: f"{_WIKITEXT} --layers 12 --width 768 --heads 12 --context 1024 --batch 4 --steps 400 --dropout 0.1 "
    f"--learning-rate 6e-4 --rows gelu,lambda_gelu,relu --recover 0 --json {_LANGUAGE}/{LARGE}",
    **{table.record: f"{table.command()} --json papers/{table.paper}/records/{table.record}" for table in TABLES},
}


def command_of(name: str) -> str:
    """What makes the records of this name.

    >>> command_of("squaf-table-12")
    'softknee study run papers/squaf/recipes/table-12.yaml'
    """
    return COMMANDS.get(name) or command_of_recipe(name)


def command_to_look(name: str) -> str:
    """The command of a record without the file that it writes."""
    return COMMANDS[name].partition(" --json")[0]
