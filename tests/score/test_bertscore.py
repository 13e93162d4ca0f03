"""BERTScore equals the package's on the same weights, and is told beside BLEU."""

import json
import warnings

import pytest
import torch
import transformers

import regard
from regard.errors import InputError
from regard.score.bertscore import Read, similarity
from tests.exchange import folders
from tests.toys import write_recipe

OUTPUTS = ["the cat sees a dog.", "birds", "the old red bird runs home now", "not a cat but cats"]
REFERENCES = ["a dog likes the cat", "a bird", "the old red bird runs home now", "cats and dogs."]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A small BERT with random weights, as its library writes it and as a run."""
    from regard.exchange import hf

    folder = tmp_path_factory.mktemp("encoder")
    (folder / "bert").mkdir()
    folders.bert(folder / "bert", transformers.BertModel)
    tokenizer = transformers.BertTokenizer(str(folder / "bert/vocab.txt"))
    tokenizer.save_pretrained(folder / "bert")
    hf.read(folder / "bert", folder / "run")
    return folder


def test_it_equals_the_package(encoder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how the package uses its own libraries
        from bert_score import BERTScorer

        scorer = BERTScorer(model_type=str(encoder / "bert"), num_layers=2, device="cpu")
        scorer._tokenizer.model_max_length = 40
        wanted = torch.stack(scorer.score(OUTPUTS, REFERENCES))
    run = regard.load(encoder / "run", device="cpu")
    read = [run.task.read_tokens(run.model, lines, 512) for lines in (OUTPUTS, REFERENCES)]
    found = [similarity(*pair) for pair in zip(*read, strict=True)]
    mine = torch.tensor([[each[name] for each in found] for name in ("precision", "recall", "f1")])
    assert torch.allclose(mine, wanted, atol=1e-5)
    assert mine[2, 2] == pytest.approx(1.0, abs=1e-5)  # the same text


def test_by_hand():
    """Two tokens against one, and a frame that is looked at but does not count."""
    one = Read(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([True, True]))
    two = Read(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([True, False]))
    assert similarity(one, two) == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    far = Read(torch.tensor([[0.0, 1.0]]), torch.tensor([True]))
    assert similarity(one, far) == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3)}
    nothing = Read(torch.ones(2, 2), torch.tensor([False, False]))
    assert similarity(one, nothing)["f1"] == 0.0


def test_it_is_told_beside_bleu(encoder, tmp_path, main):
    recipe = write_recipe(tmp_path, train=60, test=6)
    regard.train(str(recipe), "train.steps=2", run=tmp_path / "r")
    said = main("evaluate", "r", "--json", f"task.bertscore={encoder / 'run'}").out
    scores = json.loads(said)
    assert scores["headline"] == "bleu" and 0 < scores["bertscore_f1"] <= 100
    low, high = scores["bertscore_f1_interval"]
    assert low <= scores["bertscore_f1"] <= high
    assert scores["bertscore_f1_signature"] == "run, top layer, no idf, no baseline"
    assert "bertscore_f1" not in json.loads((tmp_path / "r/results.json").read_text())["test"]
    with pytest.raises(InputError, match="must be the run of an encoder of texts, but is a transf"):
        regard.load(tmp_path / "r", f"task.bertscore={tmp_path / 'r'}").evaluate()
