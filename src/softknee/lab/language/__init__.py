"""The papers' language experiments: models, preference data, SFT and DPO, perplexity."""

from .activations import full_text, put_in_
from .files import find_pairs
from .gpt2_tokenizer import load_gpt2_tokenizer
from .llama2c import load_llama2c
from .loading import LanguageModel, load_language_model
from .pair_tokens import PairTokens, tokenize
from .preference_loss import PreferenceScores, dpo_losses, scores_of
from .preferences import Pair, Preferences, read_preferences
from .story_tokenizer import StoryTokenizer, read_story_tokenizer
from .text_perplexity import Foretold, TextTokens, foretell, load_wikitext, replace_by_relu_, text_tokens
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
    "full_text",
    "load_gpt2_tokenizer",
    "load_language_model",
    "load_llama2c",
    "load_wikitext",
    "log_probabilities",
    "prefer_",
    "put_in_",
    "read_preferences",
    "read_story_tokenizer",
    "replace_by_relu_",
    "scores_of",
    "supervise_",
    "text_tokens",
    "tokenize",
]
