"""Rules are data: no text of a rule file is ever executed, whatever it looks like."""

import builtins
import re

import pytest
from trial import TARGET, block, engine, refusal

from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.diagnostic import DplcError, Source

NAMES = ["__import__", "exec", "eval", "env", "near", "block", "start", "result", "c0", "v1", "same", "Var", "lambda",
         "class", "None", "True", "holes", "UNBOUND", "return", "__builtins__", "__class__"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_only_a_name(name):
    rule = (
        f"rule r on tile\nmatch\n    for {name} in 0..n serial:\n        xs..\n"
        f"        y[{name}] = {name}_2\nrewrite\n    for {name} in 0..n free:\n        xs..\n"
        f"        y[{name}] = {name}_2\n"
    )
    made = engine(rule).fire("r", block("for k in 0..4 serial:\n    Sync()\n    y[k] = v"), TARGET)
    assert made[0].body[0].role == "free" and made[0].body[0].var == "k"


def test_strings_and_file_names_are_only_text(tmp_path):
    evil = '__import__("os")'.replace('"', "'")
    rule = (
        f"rule r on tile\nmatch\n    Wait(keep=n)\n"
        f'require n > 9 else "{evil} \\\\N{{x}} {{n}} %s"\nrewrite\n    Sync()\n'
    )
    name = "\n'''\nimport os\nos.abort()\n'''.rw"
    made = Engine(RuleSet([read_rules(Source(name, rule))]))
    reasons = [r.render() for r in made.why_not("r", block("Wait(keep=1)"), TARGET)]
    assert evil in reasons[0]
    assert evil in refusal(rule, "Wait(keep=1)")[0]


def test_nothing_of_a_rule_reaches_the_generated_text(monkeypatch):
    """Every word of a generated matcher is ours: keywords, fixed names, numbered variables, field names of nodes."""
    seen = []
    compile_ = builtins.compile

    def spy(source, file, *rest, **options):
        if isinstance(file, str) and file.startswith("<dplc"):
            seen.append(source)
        return compile_(source, file, *rest, **options)

    monkeypatch.setattr(builtins, "compile", spy)
    rule = """
rule secret(SECRET_N: int in {2, 3} = 2) on tile
match
    for secret_k in 0..SECRET_K serial:
        secret_s: Stage(depth=SECRET_D, via=not TMA)+
        secret_run..
        inside secret_ctx:
            secret_a = secret_f(secret_x, 77123)
require SECRET_K > 1 else "secret"
rewrite
    secret_run..
"""
    made = engine(rule)
    assert made.rule("secret").pattern and made.rule("secret").reporting
    assert len(seen) == 2
    for text in seen:
        assert "secret" not in text.lower() and "77123" not in text and "TMA" not in text


def test_a_member_cannot_reach_into_python():
    rule = 'rule r on tile\nmatch\n    s: Wait()\nrequire s.{} == 1 else "x"\nrewrite\n    Sync()\n'
    for field in ("__class__", "__reduce__", "_memo"):
        with pytest.raises(DplcError, match="no field"):
            refusal(rule.format(field), "Wait()")


def test_generated_words():
    """The vocabulary of a matcher, word by word."""
    from dplc.engine.rewrite.statements.pattern import StatementMatcher

    rule = (
        engine("rule r on tile\nmatch\n    for k in 0..n serial:\n        xs..\n        Sync()\nrewrite\n    Sync()\n")
        .rule("r")
        .rule
    )
    maker = StatementMatcher("tile", (), True)
    maker.items(rule.match, "block", "start", False)
    words = set(re.findall(r"[A-Za-z_]+\w*", maker.text()))
    allowed = {"def", "match", "if", "is", "not", "and", "or", "for", "in", "range", "len", "continue", "return",
               "else", "None", "block", "start", "env", "near", "node", "same", "body", "role", "step", "unroll",
               "stop", "__class__"}  # fmt: skip
    assert {word for word in words if not re.fullmatch(r"[a-z]\d+", word)} <= allowed
