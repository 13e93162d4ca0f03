"""What requests look like: OpenAI's fields under their own names, and ours beside them.

Every number has bounds, and every text can be written as UTF-8.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ..data.read import is_text


def whole_text(text: str) -> str:
    if not is_text(text):
        raise ValueError("the text must be UTF-8, but is not")
    return text


Text = Annotated[str, AfterValidator(whole_text)]
Name = Annotated[Text, Field(max_length=1000)]
Seed = Annotated[int, Ge(0), Le(2**40 - 1)]
Count = Annotated[int, Gt(0), Le(2**31 - 1)]
Index = Annotated[int, Ge(-(2**31)), Le(2**31 - 1)]
Token = Annotated[int, Ge(0), Le(2**31 - 1)]
MOST_FIELDS = 64  # of a request, or of its parameters


# The first fault is told, and no more are looked for: there could be hundreds of thousands.
Texts = Annotated[list[Text], Field(fail_fast=True)]
Tokens = Annotated[list[Token], Field(fail_fast=True)]


# What a task takes: a text, a row of numbers or texts, or an object; its form looks closer.
Object = Annotated[dict[Name, object], Field(max_length=MOST_FIELDS)]
Input = Text | list[object] | Object


class Strict(BaseModel):
    """Unknown fields are refused, and numbers must be finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def few_fields(cls, given: object) -> object:
        if isinstance(given, dict) and len(given) > MOST_FIELDS:
            raise ValueError(f"at most {MOST_FIELDS} fields, but there are {len(given)}")
        return given


class Completion(Strict):
    """A text to go on with, or to translate."""

    model: Name | None = Field(
        None, description="a run's name; may be left out where one is served"
    )
    prompt: Text | Texts | Tokens | Annotated[list[Tokens], Field(fail_fast=True)] = Field(
        examples=["To be, or not"]
    )
    max_tokens: Annotated[int, Ge(0), Le(2**31 - 1)] | None = Field(
        None, description="where nothing is said, 16 of a language model, else as its recipe has it"
    )
    temperature: Annotated[float, Ge(0), Le(100)] | None = Field(
        None, description="0: greedy; where nothing is said, as the run's recipe has it"
    )
    top_p: Annotated[float, Gt(0), Le(1)] | None = None
    top_k: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None
    min_p: Annotated[float, Ge(0), Le(1)] | None = None
    n: Count = 1
    best_of: Count | None = None
    stream: bool = False
    stream_options: dict[str, object] | None = None
    logprobs: Annotated[int, Ge(0), Le(20)] | None = None
    echo: bool = False
    stop: Text | Annotated[Texts, Field(max_length=16)] | None = None
    seed: Seed | None = Field(None, description="where nothing is said, a new one, which is told")
    num_beams: Count | None = None
    length_penalty: Annotated[float, Ge(-10), Le(10)] | None = None
    repetition_penalty: Annotated[float, Ge(0.01), Le(100)] | None = None
    suffix: None = None
    presence_penalty: Literal[0] | Annotated[float, Ge(0), Le(0)] | None = None
    frequency_penalty: Literal[0] | Annotated[float, Ge(0), Le(0)] | None = None
    logit_bias: Annotated[dict[str, object], Field(max_length=0)] | None = None
    user: Text | None = None


class TextPart(Strict):
    """A part of what a message says."""

    type: Literal["text"] = "text"
    text: Text


class Message(Strict):
    """What somebody says in a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)]
    name: Name | None = None

    @property
    def said(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class TextFormat(Strict):
    """Plain text: what is said is in no other form."""

    type: Literal["text"] = "text"


class ChatCompletion(Strict):
    """A conversation, to be answered."""

    model: Name | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=1000, fail_fast=True)] = (
        Field(examples=[[{"role": "user", "content": "What is the capital of France?"}]])
    )
    max_completion_tokens: Count | None = Field(
        None, description="where nothing is said, as the run's recipe has it"
    )
    max_tokens: Count | None = Field(None, description="its older name")
    temperature: Annotated[float, Ge(0), Le(100)] | None = Field(
        None, description="0: greedy; where nothing is said, as the run's recipe has it"
    )
    top_p: Annotated[float, Gt(0), Le(1)] | None = None
    top_k: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None
    min_p: Annotated[float, Ge(0), Le(1)] | None = None
    n: Count = 1
    stream: bool = False
    stream_options: dict[str, object] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Ge(0), Le(20)] | None = None
    stop: Text | Annotated[Texts, Field(max_length=16)] | None = None
    seed: Seed | None = Field(None, description="where nothing is said, a new one, which is told")
    repetition_penalty: Annotated[float, Ge(0.01), Le(100)] | None = None
    presence_penalty: Literal[0] | Annotated[float, Ge(0), Le(0)] | None = None
    frequency_penalty: Literal[0] | Annotated[float, Ge(0), Le(0)] | None = None
    logit_bias: Annotated[dict[str, object], Field(max_length=0)] | None = None
    response_format: TextFormat | None = None
    user: Text | None = None


class Embedding(Strict):
    """Texts to be made vectors."""

    model: Name | None = None
    input: Text | Texts = Field(examples=["A man is eating food."])
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: None = None
    user: Text | None = None


class Transcription(Strict):
    """A sound to be written down; fields of a form are texts."""

    model: Name | None = None
    inputs: Annotated[list[Object], Field(min_length=1, max_length=1)] = Field(
        description="the uploaded `file`"
    )
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    temperature: Text | None = Field(None, description="0: as the run's recipe has it")
    language: Annotated[Text, Field(max_length=16)] | None = None
    prompt: Literal[""] | None = None
    stream: Literal["false"] | None = None
    timestamp_granularities: Literal["segment"] | None = Field(
        None, alias="timestamp_granularities[]"
    )


class Prediction(Strict):
    """Inputs of any task; parameters are those of `decode`."""

    model: Name | None = None
    inputs: Text | Annotated[list[Input], Field(fail_fast=True)] | Object = Field(
        examples=[["I am hungry."]],
        description="one input, or a list of them; each as the run's task takes it",
    )
    parameters: Annotated[dict[Name, object], Field(max_length=MOST_FIELDS)] = Field(
        default_factory=dict, examples=[{"num_beams": 1}]
    )


class Attention(Strict):
    """An input to answer and look into."""

    model: Name | None = None
    input: Input = Field(examples=["I am hungry."])
    target: Text | None = None
    layers: Annotated[list[Index], Field(fail_fast=True)] | None = None
    heads: Tokens | None = None
    ablate: bool = Field(False, description="also silence one head at a time")
    vectors: bool = Field(False, description="also the queries and keys that scores come from")
    parameters: Annotated[dict[Name, object], Field(max_length=MOST_FIELDS)] = Field(
        default_factory=dict, description="how it is answered, as in /predict"
    )


class Inspection(Strict):
    """A deeper look, drawn: what a token depends on (`field`), all tokens layer by layer
    (`layers`), one word in several texts (`word`), what heads look at in texts (`heads`)."""

    model: Name | None = None
    view: Literal["field", "layers", "word", "heads"]
    inputs: Annotated[Texts, Field(min_length=1, max_length=64)] = Field(
        examples=[["The vase broke.", "The news broke."]],
        description="a text for field and layers; two or more for word",
    )
    token: Annotated[Text, Field(max_length=256)] = Field(
        "", description="which token or word, or its number; for field and word"
    )
