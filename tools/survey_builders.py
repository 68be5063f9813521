"""Builds small, untrained models of timm, transformers and torchvision, each with an example that it runs on."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from survey_nets import NETS, example
from torch import Tensor, nn

Built = tuple[nn.Module, Any]
_MEDIUM, _LARGEST = 20_000_000, 120_000_000  # parameters


@contextlib.contextmanager
def _without_large_random_numbers() -> Iterator[None]:
    """Large matrices start at 0: `enliven` fills them later, and drawing them twice takes long."""
    names = ("normal_", "trunc_normal_", "uniform_", "kaiming_normal_", "kaiming_uniform_", "xavier_uniform_")
    places = [(nn.init, name) for name in names]
    if (initialisation := sys.modules.get("timm.layers.weight_init")) is not None:
        places.append((initialisation, "_trunc_normal_"))
    with contextlib.ExitStack() as patches:
        for place, name in places:
            lazy = functools.partial(_draw_small, getattr(place, name))
            patches.enter_context(mock.patch.object(place, name, lazy))
        yield


def _draw_small(draw: Callable[..., Tensor], tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if tensor.dim() > 1 and tensor.numel() > 4096:
        return tensor.data.zero_()
    return draw(tensor, *args, **kwargs)


def names(family: str) -> list[str]:
    """The models of a family."""
    if family == "nets":
        return list(NETS)
    if family == "torchvision":
        return list(_TORCHVISION)
    return list(_timm_families()) if family == "timm" else list(_transformers_types())


def build(family: str, name: str) -> Built:
    """A model in eval mode and its example, the same on every call."""
    torch.manual_seed(0)
    if family == "nets":
        model, inputs = NETS[name](), example()
    else:
        model, inputs = {"timm": _timm, "torchvision": _torchvision, "transformers": _transformers}[family](name)
    return model.eval(), inputs


def enliven(model: nn.Module, *, gain: float = 1.3) -> None:
    """Give an untrained model weights under which every activation sees numbers on both sides of its knee.

    The initialisations of transformers leave pre-activations near 0, layer scales and last norms start at 0: an
    activation that changes there changes no output, and one function cannot be told from another.
    """
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if not weight.is_floating_point() or weight.numel() == 0:
                continue
            if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Embedding) or weight.dim() > 1:
                wide = weight.dim() > 1 and not isinstance(module, nn.Embedding)
                fan_in = weight.shape[1:].numel() if wide else 1
                if type(module).__name__ == "Conv1D":  # transformers: input first
                    fan_in = weight.shape[0]
                scale = 1.0 if isinstance(module, nn.Embedding) else gain / fan_in**0.5 if wide else 0.3
                if wide and weight.dim() == 3 and not isinstance(module, nn.Conv1d):  # experts: one matrix each
                    scale = gain / weight.shape[-1] ** 0.5
                weight.normal_(0.0, scale)
            elif weight.abs().max() < 1e-3 and "bias" not in name:
                weight.fill_(0.5)


# -- timm ------------------------------------------------------------------------------------------------------------

_SIZES = """
    atto femto pico zepto nano test xxs xxt xxtiny micro tiny xs xt mini lite 0_5 0_25 025 050 _s0 _t0 x0_25 x0_5
    _t _s small 18 10 b0 a0 f0 l0 m0 _0 26 s12 xsmall 32 lower 50 m1 sa12
"""


def _timm_families() -> dict[str, list[str]]:
    """A family is what the names of a file of timm begin with; its members, the smallest first."""
    import timm
    from timm.models import _registry

    families: dict[str, list[str]] = {}
    for name in timm.list_models():
        prefix = re.match(r"[a-z]+", name).group()  # type: ignore[union-attr]
        families.setdefault(f"{_registry._model_to_module[name]}/{prefix}", []).append(name)
    return {key: sorted(members, key=_size) for key, members in families.items()}


def _size(name: str) -> tuple[int, int, str]:
    rank = next((rank for rank, word in enumerate(_SIZES.split()) if word in name), 99)
    return rank, len(name), name


def _timm(family: str) -> Built:
    import timm

    smallest, count = "", 0
    for name in _timm_families()[family][:3]:
        with contextlib.suppress(Exception), torch.device("meta"):
            size = _count(timm.create_model(name, pretrained=False))
            if not smallest or size < count:
                smallest, count = name, size
    name = smallest or _timm_families()[family][0]
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    native = config.input_size if config else (3, 224, 224)
    errors = []
    sides = ((64, {"img_size": 64}), (64, {}), (128, {"img_size": 128}), (128, {}), (native[-1], {}))
    shallow = ({"depth": 2}, {"depths": (1, 1, 1, 1)}, {"layers": (1, 1, 1, 1)}) if count > _MEDIUM else ()
    for options, (side, sized) in itertools.product((*shallow, {}), sides):
        if config is not None and config.fixed_input_size and side != native[-1] and not sized:
            continue
        try:
            with _without_large_random_numbers():
                model = timm.create_model(name, pretrained=False, **options, **sized).eval()
            inputs = torch.randn(2, native[0], side, side)
            _try(model, inputs)
        except Exception as error:
            errors.append(f"{side}: {_line(error)}")
            continue
        model.title = name
        return model, inputs
    raise RuntimeError(f"{name}: {'; '.join(errors[-2:])}")


# -- torchvision -----------------------------------------------------------------------------------------------------

_SHAPES: dict[tuple[int, ...], str] = {
    (2, 3, 96, 96): """
        alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet mnasnet0_5 mobilenet_v2
        mobilenet_v3_small mobilenet_v3_large regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d
        shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t vgg11 vgg11_bn wide_resnet50_2 deeplabv3_mobilenet_v3_large
        fcn_resnet50 lraspp_mobilenet_v3_large
    """,
    (2, 3, 128, 128): "inception_v3 raft_small",
    (1, 3, 224, 224): "vit_b_32 maxvit_t",
    (3, 96, 96): """
        fasterrcnn_mobilenet_v3_large_320_fpn ssdlite320_mobilenet_v3_large fcos_resnet50_fpn retinanet_resnet50_fpn
        maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn ssd300_vgg16
    """,
    (1, 3, 4, 64, 64): "r3d_18 mc3_18 r2plus1d_18 swin3d_t",
    (1, 3, 16, 224, 224): "s3d mvit_v2_s",
}
_TORCHVISION = {name: shape for shape, names in _SHAPES.items() for name in names.split()}


def _torchvision(name: str) -> Built:
    from torchvision.models import get_model

    shape = _TORCHVISION[name]
    options: dict[str, Any] = {"weights_backbone": None} if name.split("_")[0] in _WITH_BACKBONE else {}
    if len(shape) == 3:
        options |= {"min_size": 96, "max_size": 96} if "ssd" not in name else {}
    if "rcnn" in name:  # untrained, it would call nothing a box
        options |= {"box_score_thresh": 0.0, "box_detections_per_img": 4}
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": False}
    with _without_large_random_numbers():
        model = get_model(name, weights=None, **options)
    if len(shape) == 3:  # detection: a list of images of any size
        return model, ([torch.rand(shape)],)
    if name == "raft_small":
        return model, (torch.rand(shape), torch.rand(shape))
    return model, torch.randn(shape)


_WITH_BACKBONE = {*("deeplabv3", "fcn", "lraspp", "fasterrcnn", "ssdlite320", "fcos", "retinanet", "maskrcnn")}
_WITH_BACKBONE |= {"keypointrcnn", "ssd300"}

# -- transformers ----------------------------------------------------------------------------------------------------

# Numbers of a configuration by their names, and the largest that they may be.
_SMALL: tuple[tuple[str, int], ...] = (
    (r"(num_)?(key_value_heads|kv_heads)|num_key_value_heads|n_kv_heads|multi_query_group_num", 2),
    (r"(\w+_)?(num_attention_heads|attention_heads|num_heads|n_heads?|heads)|linear_num_(key|value)_heads", 4),
    (r"head_dim|d_kv|qk_(nope|rope)_head_dim|v_head_dim|attention_head_size|linear_(key|value)_head_dim", 16),
    (r"kv_lora_rank|q_lora_rank", 16),
    (r"(\w+_)?(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_hidden_groups)", 2),
    (r"num_(encoder|decoder|dense|conv_pos|blocks|block)_?layers?|depth|num_blocks", 2),
    (r"(\w+_)?(intermediate_size|ffn_dim|d_ff|n_inner|inner_size|ffn_hidden_size|feedforward_dim)|d_inner", 96),
    (r"((?!type_|codebook_)\w+_)?vocab_size|vocab_size", 160),
    (r"(num_experts|n_routed_experts|num_local_experts|moe_num_experts)", 4),
    (r"num_experts_per_tok|moe_topk|moe_k|top_k", 2),
    (r"n_group|topk_group|n_groups|first_k_dense_replace", 1),
    (r"(max_position_embeddings|n_positions|n_ctx|max_seq_len|seq_length|max_source_positions)", 128),
    (r"hidden_size|d_model|n_embd|embed_dim|dim|model_dim|d_embed|embedding_size|emb_dim|word_embed_proj_dim", 64),
    (r"(\w+_)?(hidden_size|d_model|projection_dim|proj_dim|embed_dim)|hidden_dim|output_dim|projector_dim", 64),
    (r"image_size", 64),
    (r"patch_size", 8),
    (r"num_queries|num_latents", 8),
)
_LISTS = {"depths": 1, "num_layers": 1}

_SWIN = {"image_size": 64, "patch_size": 4, "window_size": 4, "embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4]}
# What the rule above does not know.
_SPECIAL: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16, "hidden_size": 64},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "topk_method": "greedy"},
    "mamba": {"time_step_rank": 4, "state_size": 8},
    "falcon_mamba": {"time_step_rank": 4, "state_size": 8},
    "jamba": {"num_hidden_layers": 8, "mamba_dt_rank": 4, "mamba_d_state": 8},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "attn_layer_indices": [1]},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 8},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 16, "layer_types": ["mamba", "attention"]},
    "zamba": {"num_hidden_layers": 8, "mamba_dt_rank": 4, "attention_hidden_size": 128, "n_mamba_heads": 2},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 8, "hybrid_override_pattern": "M*-M"},
    "longformer": {"attention_window": 8},
    "led": {"attention_window": 8},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "whisper": {"max_source_positions": 32, "max_target_positions": 32, "num_mel_bins": 16},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "expansion_ratio": 2, "max_seq_len": 64},
    "funnel": {"block_sizes": [1, 1], "d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 96, "vocab_size": 160},
    "xlnet": {"d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 96, "n_layer": 2, "vocab_size": 160},
    "gptj": {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "n_inner": 96, "vocab_size": 160},
    "codegen": {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "n_inner": 96, "vocab_size": 160},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "reformer": {"attn_layers": ["local", "lsh"], "axial_pos_shape": [4, 4], "axial_pos_embds_dim": [32, 32]},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32, "embedding_size": 32},
    "mobilevit": {"image_size": 64, "hidden_sizes": [32, 48, 64], "patch_size": 2},
    "swin": _SWIN,
    "swinv2": _SWIN,
    "detr": {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
    "rwkv": {"attention_hidden_size": 64, "context_length": 64},
    "xlstm": {"hidden_size": 64, "num_heads": 4, "num_blocks": 2, "chunk_size": 16},
    "qwen3_next": {"num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 4},
    "canine": {"num_hash_buckets": 64, "upsampling_kernel_size": 4, "downsampling_rate": 4},
    "perceiver": {"d_latents": 64, "d_model": 64, "num_latents": 8},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 64, "hidden_size": 64},
}


def _transformers_types() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return [name for name in MODEL_MAPPING_NAMES if name not in ("timm_backbone", "timm_wrapper", "gemma3n_vision")]


def _transformers(name: str) -> Built:
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    config_class = CONFIG_MAPPING[name]
    errors = []
    for rule in (_SMALL, _SMALL[4:10], ()):
        try:
            settings = _shrunk(config_class(), rule) | _SPECIAL.get(name, {}) if rule else _SPECIAL.get(name, {})
            config = config_class(**settings)
            model_class = MODEL_MAPPING[type(config)]
            model_class = model_class[0] if isinstance(model_class, tuple) else model_class
            with torch.device("meta"):
                size = _count(model_class._from_config(config, attn_implementation="eager"))
            if size > _LARGEST:
                raise RuntimeError(f"it has {size:,} parameters in this size")
            torch.manual_seed(0)
            model = model_class._from_config(config, attn_implementation="eager").eval().float()
        except Exception as error:
            errors.append(_line(error))
            continue
        for inputs in _inputs(model, config):
            try:
                _try(model, inputs)
                return model, inputs
            except Exception as error:
                errors.append(f"{'/'.join(inputs)}: {_line(error)}")
    raise RuntimeError("; ".join(dict.fromkeys(errors[:2] + errors[-1:])))


def _shrunk(config: Any, rule: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """The settings of a configuration that are too large, made small; those of its parts, too."""
    result: dict[str, Any] = {}
    for key, value in vars(config).items():
        if type(value) is int:
            small = next((small for pattern, small in rule if re.fullmatch(pattern, key)), None)
            if key.endswith("token_id") and value > 150:
                small = 3
            if small is not None and value > small:
                result[key] = small
        elif key in _LISTS and isinstance(value, list) and all(type(item) is int for item in value):
            result[key] = [_LISTS[key]] * len(value)
        elif hasattr(value, "to_dict") and (inner := _shrunk(value, rule)):
            kind = {"model_type": value.model_type} if getattr(value, "model_type", "") else {}
            result[key] = kind | inner
    if "kv_lora_rank" in vars(config) and "num_key_value_heads" in result:
        result["num_key_value_heads"] = result.get("num_attention_heads", 4)  # latent attention has no groups
    return {key: value for key, value in result.items() if not key.startswith("_")}


def _inputs(model: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    """Examples that a model may take, the likeliest first."""
    takes = set(inspect.signature(model.forward).parameters)
    text = getattr(config, "text_config", config)
    vision = getattr(config, "vision_config", config)
    words = torch.randint(4, max(5, min(30, getattr(text, "vocab_size", 30) or 30)), (1, 16))
    side = getattr(vision, "image_size", 64) or 64
    side = list(side) if isinstance(side, list | tuple) else [side, side]
    colours = getattr(vision, "num_channels", 3) or 3
    mels = next((getattr(config, key) for key in _MELS if isinstance(getattr(config, key, None), int)), 80)
    frames = 2 * getattr(config, "max_source_positions", 32)
    pictures: list[Tensor] = [torch.randn(1, colours, *side), torch.randn(1, colours, 64, 64)]
    pictures += [torch.randn(1, colours, 224, 224), torch.randn(1, 8, colours, *side)]
    values: dict[str, list[Any]] = {
        "input_ids": [words],
        "pixel_values": pictures,
        "pixel_values_videos": [torch.randn(1, getattr(config, "frames_per_clip", 4), colours, *side)],
        "input_values": [torch.randn(1, 2000), torch.randn(1, 1, 2000), torch.randn(1, 64, mels)],
        "input_features": [torch.randn(1, mels, frames), torch.randn(1, 64, mels), torch.randn(1, mels, 3000)],
        "audio_values": [torch.randn(1, 1, 2000)],
        "past_values": [
            torch.randn(1, getattr(config, "context_length", 32), getattr(config, "num_input_channels", 1))
        ],
        "hidden_states": [torch.randn(1, 16, getattr(config, "hidden_size", 64))],
        "inputs": [words],
    }
    also = {"decoder_input_ids": words[:, :8]} if "decoder_input_ids" in takes else {}
    main = [key for key in (model.main_input_name, *values) if key in takes and key in values]
    for key in dict.fromkeys(main):
        for value in values[key]:
            yield {key: value}
            if also:
                yield {key: value} | also
            if "pixel_values" in takes and key == "input_ids":
                yield {key: value, "pixel_values": pictures[0]} | also


_MELS = ("num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels", "feature_projection_input_dim")


# -- common ----------------------------------------------------------------------------------------------------------


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def call(model: Callable[..., Any], inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _try(model: nn.Module, inputs: Any) -> None:
    with torch.no_grad():
        call(model, inputs)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error).strip() else ''}"
