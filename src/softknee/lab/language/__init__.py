"""The papers' language experiments: models, preference data, SFT and DPO, perplexity."""

from .loading import LanguageModel, find_pairs, load_language_model, load_llama2c
from .preferences import (
    Pair,
    PairTokens,
    Preferences,
    PreferenceScores,
    dpo_losses,
    read_preferences,
    scores_of,
    tokenize,
)
from .text_perplexity import Foretold, TextTokens, foretell, load_wikitext, replace_by_relu_, text_tokens
from .tokenizers import StoryTokenizer, load_gpt2_tokenizer, read_story_tokenizer
from .tuning import Recipe, evaluate, log_probabilities, prefer_, supervise_

__all__ = [
    "Foretold",
    "LanguageModel",
    "Pair",
    "PairTokens",
    "PreferenceScores",
    "Preferences",
    "Recipe",
    "StoryTokenizer",
    "TextTokens",
    "dpo_losses",
    "evaluate",
    "find_pairs",
    "foretell",
    "load_gpt2_tokenizer",
    "load_language_model",
    "load_llama2c",
    "load_wikitext",
    "log_probabilities",
    "prefer_",
    "read_preferences",
    "read_story_tokenizer",
    "replace_by_relu_",
    "scores_of",
    "supervise_",
    "text_tokens",
    "tokenize",
]
