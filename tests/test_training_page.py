"""docs/training.md, executed section by section, each in a folder of its own."""

import re
import shlex

import pytest
import transformers

import regard
from tests.conftest import ROOT
from tests.exchange import folders
from tests.toys import sentences, translate, write_recipe

PAGE = (ROOT / "docs/training.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", PAGE, re.M))
SMALL = ["train.device=cpu", "train.evaluate_examples=2"]


@pytest.fixture
def files(tmp_path):
    """What the page says are your own: recipes, texts in one language, an encoder's folder."""
    toy = write_recipe(tmp_path, train=60, valid=4, test=4)
    said = toy.read_text()
    (tmp_path / "translate.toml").write_text(said)
    turned = re.sub(r'\["(\w+).en", "\w+.fr"\]', r'["\1.fr", "\1.en"]', said)
    (tmp_path / "back.toml").write_text(turned)
    (tmp_path / "mono.fr").write_text("".join(f"{translate(s)}\n" for s in sentences(12, 5)))
    (tmp_path / "bert-folder").mkdir()
    folders.bert(tmp_path / "bert-folder", transformers.BertModel)
    return tmp_path


def run_shell(main, folder, block):
    """Each line as it stands; what is trained is small whatever the recipe says."""
    for line in block.splitlines():
        command, _, out = line.partition(" > ")
        _, *words = shlex.split(command)
        if words[0] == "train":
            words[2:2] = SMALL
        said = main(*words)
        if out:
            (folder / out).write_text(said.out)


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if "```" in text])
def test_the_page_runs_as_it_is_written(section, files, main, monkeypatch):
    monkeypatch.chdir(files)
    names = {"__name__": "page", "regard": regard}
    for kind, block in re.findall(r"```(sh|python)\n(.*?)```", SECTIONS[section], re.S):
        if kind == "sh":
            run_shell(main, files, block)
        else:
            exec(compile(block, f"{section}", "exec"), names)
    made = {
        "Going on": "runs/translate/checkpoint-16",
        "Rows of Python": "runs/films/data/valid.jsonl",
        "Several seeds, and a sweep": "runs/translate-sweep.md",
        "Back-translation": "runs/with-back/README.md",
        "BERTScore": "runs/translate/results.json",
        "Models of others": "gpt2.html",
    }
    assert (files / made[section]).exists()
    if section == "BERTScore":
        assert "bertscore_f1" in (files / made[section]).read_text()
    if section.startswith("Several"):
        assert (files / "runs/translate-seeds.json").is_file()
