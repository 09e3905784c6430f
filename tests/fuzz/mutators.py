"""Changes to texts, JSON and files, as an accident or an enemy makes them; each decided by the dice it is given."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKEN = re.compile(r"\w+|\n[ ]*|[ ]+|\.\.|:=|=>|<-|->|//|[^\w\s]")
NUMBERS = ("0", "1", "-1", "2", "3", "1.5", "1e400", "1e30", "9" * 30, "9" * 5000, "9223372036854775807", "-0.0", "inf",
           "nan", "4294967296", "1024")  # fmt: skip
WORDS = ("f9", "f999999999999", "f64", "c128", "b8", "i64", "none", "true", "_", "x", "__import__", "__class__", "eval",
         "NaN", "é", "\x00", "..", "//", "%", "**", "(", ")", "[", "]", "{", "}", '"', ":", "=", "1 // 0", "x % 0", "0..999999999999")  # fmt: skip


def payloads(canary: Path) -> tuple[str, ...]:
    """Texts that leave a file where anything runs them, as Python, C++ or a shell."""
    touch = f"touch {canary}"
    return (
        f"__import__('os').system('{touch}')",
        f'"); __import__("os").system("{touch}"); ("',
        f"$({touch})",
        f"`{touch}`; {touch} #",
        f'x = 0; extern "C" int system(const char*); static int boom = system("{touch}"); //',
        f'\n}}\nextern "C" int system(const char*);\n__attribute__((constructor)) static void f() {{ system("{touch}"); }}\n//',
        f"{{{{ ''.__class__.__base__.__subclasses__() }}}} {touch}",
        f"!!python/object/apply:os.system ['{touch}']",
    )


def changed_text(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    """A text after one to three changes. others: texts to take pieces of."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        text = dice.choice(TEXT_CHANGES)(dice, text, others, evil)
    return text


def _tokens(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    tokens = TOKEN.findall(text)
    if not tokens:
        return text
    place, kind = dice.randrange(len(tokens)), dice.randrange(5)
    if kind == 0:
        del tokens[place]
    elif kind == 1:
        tokens.insert(place, tokens[dice.randrange(len(tokens))])
    elif kind == 2:
        other = dice.randrange(len(tokens))
        tokens[place], tokens[other] = tokens[other], tokens[place]
    elif kind == 3:
        tokens[place] = dice.choice(WORDS)
    else:
        tokens[place] = dice.choice(TOKEN.findall(dice.choice(others)) or ["x"])
    return "".join(tokens)


def _number(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    found = list(re.finditer(r"(?<![\w.])\d+(\.\d+)?", text))
    if not found:
        return text
    place = dice.choice(found)
    return text[: place.start()] + dice.choice(NUMBERS) + text[place.end() :]


def _word(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    found = list(re.finditer(r"[A-Za-z_]\w*", text))
    if not found:
        return text
    place = dice.choice(found)
    word = dice.choice((*WORDS, *(dice.choice(found)[0] for _ in range(20))))
    return text[: place.start()] + word + text[place.end() :]


def _line(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    lines = text.split("\n")
    place, kind = dice.randrange(len(lines)), dice.randrange(5)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, lines[dice.randrange(len(lines))])
    elif kind == 2:
        lines[place] = "    " + lines[place]
    elif kind == 3:
        lines[place] = lines[place].lstrip()
    else:
        lines.insert(place, dice.choice(dice.choice(others).split("\n")))
    return "\n".join(lines)


def _character(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    if not text:
        return text
    place = dice.randrange(len(text))
    return (
        text[:place]
        + chr(dice.choice((0, 9, 10, 13, 34, 39, 92, 0x660, 0x2028, 0xFEFF, dice.randrange(128))))
        + text[place + 1 :]
    )


def _cut(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    return text[: dice.randrange(len(text) + 1)]


def _deep(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    place, many = dice.randrange(len(text) + 1), dice.choice((30, 300, 20_000))
    open_, close = dice.choice(("()", "[]", "{}"))
    return text[:place] + open_ * many + "1" + close * many + text[place:]


def _evil(dice: random.Random, text: str, others: tuple[str, ...], evil: tuple[str, ...]) -> str:
    found = list(re.finditer(r'"[^"\n]*"|[A-Za-z_]\w*|\n', text)) or [re.search("", text)]
    place = dice.choice(found)
    assert place is not None
    return text[: place.start()] + dice.choice(evil) + text[place.end() :]


Change = Callable[[random.Random, str, tuple[str, ...], tuple[str, ...]], str]
TEXT_CHANGES: tuple[Change, ...] = (_tokens, _tokens, _number, _number, _number, _word, _word, _line, _character, _cut, _deep, _evil)  # fmt: skip


# ---- near changes: texts that still parse, but say something else

SMALL_NUMBERS = ("0", "1", "2", "3", "4", "5", "7", "8", "16", "17", "32", "64", "100", "1024")
WHOLE = r"(?<![\w.])\d+(?![\w.])"


def near_text(dice: random.Random, text: str) -> str:
    """A text after one or two changes within its own words: a name for another, a number, a line left out, twice or elsewhere."""
    for _ in range(dice.choice((1, 1, 1, 2))):
        text = dice.choice((_other_name, _other_name, _other_number, _lines_moved, _lines_moved))(dice, text)
    return text


def _other_name(dice: random.Random, text: str) -> str:
    return _exchanged(dice, text, r"[A-Za-z_]\w*", ())


def _other_number(dice: random.Random, text: str) -> str:
    return _exchanged(dice, text, WHOLE, SMALL_NUMBERS)


def _exchanged(dice: random.Random, text: str, pattern: str, further: tuple[str, ...]) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    place, other = dice.choice(found), dice.choice(found)[0]
    other = dice.choice(further) if further and dice.random() < 0.9 else other
    return text[: place.start()] + other + text[place.end() :]


def _lines_moved(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    first, second, kind = dice.randrange(len(lines)), dice.randrange(len(lines)), dice.randrange(3)
    if kind == 0:
        del lines[first]
    elif kind == 1:
        lines.insert(first, lines[first])
    else:
        lines[first], lines[second] = lines[second], lines[first]
    return "\n".join(lines)


# ---- JSON


def changed_json(dice: random.Random, value: Any, evil: tuple[str, ...]) -> Any:
    """A value with one place in it changed."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    if not places:
        return _odd(dice, value, evil)
    inside, key = dice.choice(places)
    kind = dice.randrange(8)
    if kind == 0:
        del inside[key]
    elif kind == 1 and isinstance(inside, list):
        inside.insert(key, inside[dice.randrange(len(inside))])
    elif kind == 1:
        inside[dice.choice((*evil, "x", "../x", ""))] = inside.pop(key)
    elif kind == 2:
        other, there = dice.choice(places)
        if there in other if isinstance(other, dict) else there < len(other):
            inside[key] = json.loads(json.dumps(other[there]))
    elif kind == 3 and isinstance(inside[key], (list, dict)):
        inside[key].clear()
    else:
        inside[key] = _odd(dice, inside[key], evil)
    return value


def _places(value: Any) -> Any:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _odd(dice: random.Random, value: Any, evil: tuple[str, ...]) -> Any:
    near = (value + 1, value - 1, -value, value * 2**40, value / 3) if type(value) in (int, float) else ()
    text = (value[:-1], value + "x", value.upper(), "../" + value, value + "\n") if isinstance(value, str) else ()
    return dice.choice((
        None, True, 0, -1, 1.5, 10**30, 2**63, 2**31, 1e300, "", "zz", "f32", "../../decoy", "/dev/zero", "\x00",
        "x" * 5000, [], {}, [[]], {"a": 1}, [value], *near, *near, *text, *text, *evil,
    ))  # fmt: skip


def json_bytes(dice: random.Random, value: Any) -> bytes:
    """JSON as bytes; now and then no JSON any more."""
    data = json.dumps(value).encode()
    kind = dice.randrange(24)
    if kind == 0:
        return data[: dice.randrange(len(data) + 1)]
    if kind == 1:
        return flipped(dice, data)
    if kind == 2:
        many = dice.choice((100, 5_000, 100_000))
        place = dice.randrange(len(data) + 1)
        return data[:place] + b"[" * many + b"]" * many + data[place:]
    if kind == 3:
        return data.replace(b"1", b"1e999", 1)
    return data


# ---- files


def flipped(dice: random.Random, data: bytes) -> bytes:
    """Some bytes changed, left out or put in."""
    made = bytearray(data)
    for _ in range(dice.choice((1, 1, 4, 40))):
        if not made:
            break
        place = dice.randrange(len(made))
        kind = dice.randrange(3)
        if kind == 0:
            made[place] = dice.choice((0, 255, 127, dice.randrange(256)))
        elif kind == 1:
            del made[place]
        else:
            made.insert(place, dice.randrange(256))
    return bytes(made)


def replaced(path: Path, data: bytes) -> None:
    """A file with other contents. What stands there is removed first: it may be a link to somebody else's file."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def odd_file(dice: random.Random, path: Path, elsewhere: Path) -> None:
    """Something else in the place of a file: nothing, a folder, a link, a pipe, a lot. Links go to a file of the
    harness's own, `elsewhere`, never to one that a slip of the harness could spoil."""
    kind = dice.randrange(6)
    path.unlink()
    if kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(dice.choice(("/dev/zero", str(elsewhere), str(path), str(elsewhere.parent / "nothing"))))
    elif kind == 3:
        os.mkfifo(path)
    elif kind == 4:
        path.write_bytes(b"")
    elif kind == 5:
        with path.open("wb") as file:
            file.truncate(1 << 40)
