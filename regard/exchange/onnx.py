"""ONNX out: a folder of graphs for ONNX Runtime and others, and how they are called."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..batch import Ids, Permuted, Running
from ..errors import RunError
from ..model import Model
from ..parts import mask as masks
from ..parts.attention import Attention
from ..parts.pattern import Layout, laid_out
from ..tasks.task import HasText, Labels
from ..training.checkpoint import write_text
from ..training.run import Run
from .folder import must_be_new
from .graphs import Graph, Port, graphs_of
from .hf import check_hides_nothing, texts_of, write_vocabulary


def write(run: Run, folder: Path) -> str:
    """Make a folder with its graphs, its vocabulary and a page on both; a word on what it is."""
    must_be_new(folder)
    check_hides_nothing(run)
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise RunError("--to onnx needs its exporter; pip install 'regard[onnx]'.") from error
    longest = longest_of(run)
    with ready(run.model, longest):
        normalise = bool(vars(run.recipe.task).get("normalise", False))
        graphs = graphs_of(run.model, run.task.sizes, normalise)
        folder.mkdir(parents=True, exist_ok=True)
        for name, graph in graphs.items():
            trace(graph.eval(), folder / name, run.folder)
    shapes = {name: shapes_in(onnx.load(folder / name).graph) for name in graphs}
    about = {"task": run.recipe.task_kind, "graphs": described(graphs, shapes), **kept_by(run)}
    if any(part.pattern is not None for part in attentions(run.model)):
        about["longest"] = longest
    write_text(folder / "regard.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    for name, content in run.task.artefacts().items():
        write_text(folder / name, content)
    inputs = [port.name for graph in graphs.values() for port in graph.inputs]
    if run.task.sizes.read in (Ids, Running, Permuted):
        # What the vocabulary makes of a text is what the graph takes.
        config = {"is_encoder_decoder": True} if "decoder_input_ids" in inputs else {}
        made = ("input_ids", "attention_mask", "token_type_ids")
        write_vocabulary(run, folder, config, [name for name in made if name in inputs])
    write_text(folder / "README.md", page(run, graphs, shapes))
    return ", ".join(f"{name} ({signature(graph)})" for name, graph in graphs.items())


def trace(graph: Graph, path: Path, where: object) -> None:
    """One graph as a file; what is traced must hold for other lengths than the example's."""
    logs = logging.getLogger("torch.onnx"), logging.getLogger("onnxscript")
    levels = [log.level for log in logs]
    for log in logs:  # what they leave out of their own accord is nobody's concern
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad(), any_length():
            warnings.simplefilter("ignore")
            traced = torch.export.export(
                graph,
                tuple(port.example for port in graph.inputs),
                dynamic_shapes=(tuple(dict.fromkeys(p.open, OPEN) for p in graph.inputs),),
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            torch.onnx.export(
                traced,
                f=str(path),
                input_names=[port.name for port in graph.inputs],
                output_names=[port.name for port in graph.outputs],
                dynamic_shapes=(tuple(port.open for port in graph.inputs),),
                dynamo=True,
                verbose=False,
                external_data=False,
            )
    except (torch.onnx.OnnxExporterError, torch._dynamo.exc.UserError, RuntimeError) as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        raise RunError(
            f"{where}: torch's exporter makes no graph of this model ({cause}); use it from Python "
            "(regard.load) or over HTTP (regard serve)."
        ) from error
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


OPEN = torch.export.Dim.DYNAMIC


def any_length() -> AbstractContextManager[object]:
    """Nothing is taken for granted of a length, not even that there is more than one."""
    settings: Any = torch.fx.experimental._config
    patch: AbstractContextManager[object] = settings.patch(backed_size_oblivious=True)
    return patch


class Masked(nn.Module):
    """Attention by a pattern with all compared and masked: the same answers for texts of any
    length up to the longest, which blocks of a fixed number would not give."""

    def __init__(self, part: Attention, longest: int) -> None:
        super().__init__()
        pattern, few = part.pattern, torch.arange(2)
        assert pattern is not None
        self.attend = part.attend
        self.layouts = {
            causal: laid_out(pattern, part.block, longest, part.heads, causal)
            for causal in (False, True)
        }
        for layout in self.layouts.values():
            layout.seen_from(few, few)  # what is drawn is kept, and must be drawn of real numbers

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Any, _: bool, layout: Layout
    ) -> Tensor:
        every = torch.arange(q.shape[2], device=q.device)
        seen = self.layouts[layout.size.causal].seen_from(every, every)
        mixed: Tensor = self.attend(q, k, v, masks.both(mask, seen), bias)
        return mixed


@contextmanager
def ready(model: Model, longest: int) -> Iterator[None]:
    """While this lasts, a model can be traced: no packed products, which are for torch alone, and
    no blocks."""
    packed = [
        (part, name, vars(part).pop(name))
        for part in model.modules()
        for name in ("forward", "joined")
        if name in vars(part)
    ]
    patterned = [part for part in attentions(model) if part.pattern is not None]
    plain = [part.attend for part in patterned]
    for part in patterned:
        part.attend = Masked(part, longest)  # type: ignore[assignment]
    try:
        yield
    finally:
        for part, attend in zip(patterned, plain, strict=True):
            part.attend = attend
        for owner, name, product in packed:
            setattr(owner, name, product)


def attentions(model: nn.Module) -> list[Attention]:
    return [part for part in model.modules() if isinstance(part, Attention)]


def longest_of(run: Run) -> int:
    """Tokens of a text for which patterns are laid out."""
    recipe = run.recipe
    named = type(run.task).longest_read(recipe.task, recipe.sections)
    return run.model.longest or max(named[1] if named else 0, recipe.data.max_length)


# What is said of it.


def shapes_in(graph: Any) -> dict[str, list[object]]:
    """The shapes of what goes in and comes out, as the file has them: rows first."""
    found = {}
    for value in (*graph.input, *graph.output):
        _, *sides = value.type.tensor_type.shape.dim
        found[value.name] = ["rows", *(side.dim_param or side.dim_value for side in sides)]
    return found


def described(
    graphs: dict[str, Graph], shapes: dict[str, dict[str, list[object]]]
) -> dict[str, object]:
    """Every tensor of every graph, with its shape and what it is."""
    return {
        file: {
            side: {
                port.name: {"shape": shapes[file][port.name], "about": port.about}
                for port in ports
                if port.name in shapes[file]
            }
            for side, ports in (("inputs", graph.inputs), ("outputs", graph.outputs))
        }
        for file, graph in graphs.items()
    }


def kept_by(run: Run) -> dict[str, object]:
    """What numbers mean: entries of the vocabulary that have a part to play, and classes."""
    about: dict[str, object] = {}
    if isinstance(run.task, HasText):
        text = texts_of(run)[-1]
        about |= {"bos": text.bos, "eos": text.eos, "pad": text.pad}
    if isinstance(run.task, Labels) and run.task.labels:
        about["labels"] = run.task.labels
    return about


def signature(graph: Graph) -> str:
    """What goes in and what comes out; several that are numbered are said once."""

    def names(ports: list[Port]) -> str:
        return ", ".join(dict.fromkeys(re.sub(r"\d+$", "…", port.name) for port in ports))

    return f"{names(graph.inputs)} -> {names(graph.outputs)}"


def page(run: Run, graphs: dict[str, Graph], shapes: dict[str, dict[str, list[object]]]) -> str:
    """How the graphs are called, for whoever finds the folder."""
    rows = [f"# {run.folder.resolve().name}\n"]
    rows.append(
        f"A {run.recipe.model_kind} for the task `{run.recipe.task_kind}`, as ONNX graphs. What is "
        "said here stands in `regard.json` too.\n"
    )
    for file, graph in graphs.items():
        rows.append(f"## {file}\n\n| | shape | |\n| --- | --- | --- |")
        for side, ports in (("in", graph.inputs), ("out", graph.outputs)):
            for port in ports:
                if port.name in shapes[file]:
                    shape = " × ".join(map(str, shapes[file][port.name]))
                    rows.append(f"| {side} `{port.name}` | {shape} | {port.about} |")
        rows.append("")
    rows.append(HOW["decoder.onnx" if "decoder.onnx" in graphs else "model.onnx"])
    return "\n".join(rows) + "\n"


HOW = {
    "model.onnx": """\
```python
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
scores = session.run(["scores"], {…})[0]  # a NumPy array for each input above
```

Whoever writes with it brings the loop: choose from the scores of the last word, put it behind the
others, and call again.
""",
    "decoder.onnx": """\
```python
import onnxruntime

reader = onnxruntime.InferenceSession("encoder.onnx")
writer = onnxruntime.InferenceSession("decoder.onnx")
names = [port.name for port in reader.get_outputs()]
state = dict(zip(names, reader.run(names, {…})))  # a NumPy array for each input above
wanted = {port.name for port in writer.get_inputs()}
state = {name: state[name] for name in state if name in wanted}
last = …  # the entry that begins a text, once for each row
while True:
    names = [port.name for port in writer.get_outputs()]
    out = dict(zip(names, writer.run(names, {"last": last, **state})))
    last = out.pop("scores").argmax(-1)  # until all rows have said the entry that ends a text
    state |= {name.replace("present", "past"): tensor for name, tensor in out.items()}
```
""",
}
