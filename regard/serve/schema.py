"""What requests look like: OpenAI's fields under their own names, and ours beside them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Field

Seed = Annotated[int, Ge(0), Le(2**40 - 1)]


class Strict(BaseModel):
    """Unknown fields are refused, and numbers must be finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Completion(Strict):
    """A text to go on with, or to translate."""

    model: str | None = Field(None, description="a run's name; may be left out where one is served")
    prompt: str | list[str] | list[int] | list[list[int]] = Field(examples=["To be, or not"])
    max_tokens: Annotated[int, Ge(0)] | None = Field(None, description="16 where nothing is said")
    temperature: Annotated[float, Ge(0), Le(100)] | None = Field(None, description="0: greedy")
    top_p: Annotated[float, Gt(0), Le(1)] | None = None
    top_k: Annotated[int, Ge(0)] | None = None
    min_p: Annotated[float, Ge(0), Le(1)] | None = None
    n: Annotated[int, Gt(0)] = 1
    best_of: Annotated[int, Gt(0)] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    logprobs: Annotated[int, Ge(0), Le(20)] | None = None
    echo: bool = False
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: Seed | None = None
    num_beams: Annotated[int, Gt(0)] | None = None
    length_penalty: Annotated[float, Ge(-10), Le(10)] | None = None
    repetition_penalty: Annotated[float, Gt(0), Le(100)] | None = None
    suffix: None = None
    presence_penalty: Literal[0] | Annotated[float, Ge(0), Le(0)] | None = None
    frequency_penalty: Literal[0] | Annotated[float, Ge(0), Le(0)] | None = None
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None
    user: str | None = None


class Embedding(Strict):
    """Texts to be made vectors."""

    model: str | None = None
    input: str | list[str] = Field(examples=["A man is eating food."])
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: None = None
    user: str | None = None


class Prediction(Strict):
    """Inputs of any task; parameters are those of `decode`."""

    model: str | None = None
    inputs: str | list[str] = Field(examples=[["I am cold."]])
    parameters: dict[str, Any] = Field(default_factory=dict, examples=[{"num_beams": 1}])


class Attention(Strict):
    """An input to answer and look into."""

    model: str | None = None
    input: str = Field(examples=["I am cold."])
    target: str | None = None
    layers: list[int] | None = None
    heads: list[Annotated[int, Ge(0)]] | None = None
    ablate: bool = Field(False, description="also silence one head at a time")
