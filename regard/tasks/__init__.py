"""What a run is for; `TASKS` is what `task.kind` picks from."""

from .answer import Answer
from .caption import Caption
from .classify import Classify
from .converse import Converse
from .decide import Decide
from .embed import Embed
from .graphs import ClassifyGraphs
from .language import Language
from .masked import MaskedWords
from .nodes import ClassifyNodes
from .patches import MaskedPatches
from .permute import Permute
from .pictures import ClassifyPictures
from .prediction import Prediction
from .spans import Spans
from .speech import Speech
from .story import Story
from .tag import Tag
from .task import AnyTask, Task
from .text_to_text import TextToText
from .translate import Translate

TASKS: dict[str, type[AnyTask]] = {
    "translate": Translate,
    "language": Language,
    "chat": Converse,
    "permute": Permute,
    "story": Story,
    "masked": MaskedWords,
    "spans": Spans,
    "text-to-text": TextToText,
    "classify": Classify,
    "tag": Tag,
    "answer": Answer,
    "embed": Embed,
    "picture": ClassifyPictures,
    "patches": MaskedPatches,
    "caption": Caption,
    "speech": Speech,
    "graph": ClassifyGraphs,
    "node": ClassifyNodes,
    "decide": Decide,
}

__all__ = ["TASKS", "AnyTask", "Prediction", "Task"]
