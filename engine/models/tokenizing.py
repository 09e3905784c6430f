"""Text to tokens and back, by the tokenizer in a model's folder; and the tokens that its folder says end a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...ir.diagnostic import DplcError
from .sources import folder_of, is_id, quiet, reach_hub

FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
WITHOUT = "give the tokens themselves: --ids 1,2,3"


class Tokenizer:
    """transformers' tokenizer of a model: a folder, a configuration beside its tokenizer, or an id of the hub.

    Nothing of the model is executed. Raises DplcError where there is none.
    """

    def __init__(self, model: str) -> None:
        place = folder_of(model)
        held = place is not None and any((place / name).is_file() for name in FILES)
        if not held and not is_id(model):
            raise DplcError(f"{model} has no tokenizer beside it", hint=WITHOUT)
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise DplcError("tokenizers need transformers", hint="pip install 'dplc[hub]'") from None
        try:
            with quiet():
                if not held:
                    reach_hub()
                self._tokenizer: Any = AutoTokenizer.from_pretrained(str(place) if held else model)
        except Exception as error:  # damaged files, no network: many classes, one sentence
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise DplcError(f"the tokenizer of {model} cannot be used", notes=(lines[0],), hint=WITHOUT) from None

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, with those that the model wants at its start."""
        return [int(number) for number in self._tokenizer(text)["input_ids"]]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without those that only mark its start and end."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class Stream:
    """A text that comes token by token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._tokens, self._told = tokenizer, list[int](), ""

    def more(self, token: int, last: bool = False) -> str:
        """What a token adds to the text: nothing yet where it ends inside a character."""
        self._tokens.append(token)
        text = self._tokenizer.text(self._tokens)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and not last:
            return ""
        new, self._told = text[len(self._told) :], text
        return new


def stops_of(model: str) -> frozenset[int] | None:
    """The tokens that end a text as `generation_config.json` has them, which then counts; None if nothing says so."""
    folder = folder_of(model)
    if folder is None or not (folder / "generation_config.json").is_file():
        return None
    try:
        found = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
        return frozenset(map(int, found if isinstance(found, list) else [found]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
