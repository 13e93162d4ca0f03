"""One file a model; `MODELS` is what `model.kind` picks from."""

from ..model import Model
from .bert import BERT
from .decision import DecisionModel
from .glimpse import Glimpse
from .gpt import GPT
from .graph import GraphModel
from .memory import MemoryNetwork
from .rnn import RNN
from .seq2seq import Seq2Seq
from .t5 import T5
from .table import TableModel
from .transformer import Transformer
from .vit import ViT
from .xl import XL
from .xlnet import XLNet

MODELS: dict[str, type[Model]] = {
    "transformer": Transformer,
    "seq2seq": Seq2Seq,
    "memory": MemoryNetwork,
    "rnn": RNN,
    "gpt": GPT,
    "xl": XL,
    "xlnet": XLNet,
    "bert": BERT,
    "t5": T5,
    "vit": ViT,
    "glimpse": Glimpse,
    "graph": GraphModel,
    "decision": DecisionModel,
    "table": TableModel,
}
