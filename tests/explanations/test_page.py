"""The page about faithfulness shows what is stored next to the cards."""

from pathlib import Path

import benchmark_scripts
import pytest

from zoo import registry
from zoo.commands import cards
from zoo.commands.explain import INPUTS
from zoo.explanations import certificate, counterfactual, erasure, measure

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faithfulness.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_the_certificates():
    script = benchmark_scripts.script("faithfulness")
    found = script.table(script.stored())
    assert len(found.splitlines()) > 2
    assert found in PAGE, f"python benchmarks/faithfulness.py prints what belongs there:\n{found}"


def test_it_names_the_weights_near_a_limit():
    script = benchmark_scripts.script("faithfulness")
    assert script.near(script.stored()) in PAGE, (
        f"python benchmarks/faithfulness.py prints:\n{script.near(script.stored())}"
    )


def test_the_prose_agrees_with_the_certificates():
    found = benchmark_scripts.script("faithfulness").stored()
    seconds = sorted(one.seconds for one in found)
    assert f"{seconds[0]} to {seconds[-1]} s of processor time" in PAGE
    captions = sorted(one.seconds / one.drawn for one in found if one.task == "captioning")
    assert f"for a caption {captions[0]:.1f} to {captions[-1]:.1f} s" in PAGE
    translators = [one for one in found if one.verdict == "yes"]
    assert f"Of the 18 recurrent translators of sentences with attention {len(translators)} pass all four" in PAGE
    divergences = sorted(one.figures["adversary"].mean for one in translators)
    assert f"the {len(translators)} recurrent translators above ({divergences[0]:.2f} to {divergences[-1]:.2f})" in PAGE


def test_the_limits_are_those_of_the_code():
    shares = ", ".join(f"{100 * share:g}" for share in erasure.SHARES)
    for said in (
        f"the first {shares} % of the words",
        f"at least {certificate.TAU}",
        f"by at least {certificate.USED}",
        f"at most {counterfactual.ALLOWED}",
        f"{certificate.DIFFERENT:.3f} nats",
        f"{measure.PERMUTATIONS} permutations",
        f"from {counterfactual.STARTS} permutations, {counterfactual.STEPS} steps",
        f"at most {measure.LEFT_OUT} words",
    ):
        assert said in " ".join(PAGE.split()), said


@pytest.mark.parametrize("name", registry.list_models())
def test_each_card_says_whether_the_attention_explains(name):
    card, prose = cards.read_card(name)
    section = prose.split("\n## Does the attention explain?\n")[1].split("\n## ")[0]
    if card["task"] in INPUTS and registry.open_bundle(name).class_path != "zoo.models.seq2seq.Seq2SeqNMT":
        assert registry.certificate_file(name).is_file(), f"zoo explain {name} --certificate --data.root DATA --json"
    else:
        assert section.strip().startswith("It has no certificate, because ")
        assert not registry.certificate_file(name).is_file()
