"""What is said in a sound, as OpenAI's route tells it: as JSON, as text, or as subtitles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fastapi.responses import JSONResponse, PlainTextResponse, Response

from ..errors import InputError
from ..tasks.sound import GivenSound, SoundForm
from . import schema
from .served import ServedRun


class Segment(NamedTuple):
    """What is said from one second to another."""

    start: float
    end: float
    text: str


async def answer(one: ServedRun, asked: schema.Transcription) -> Response:
    form = one.task.gives
    if not isinstance(form, SoundForm):
        raise InputError(f"model: {one.name} ({one.kind}) reads no sound; a run of speech does.")
    parameters = checked(asked)
    given = await asyncio.to_thread(read_file, form, asked.inputs[0])
    (found,) = await one.predict([given], parameters)
    seconds = len(given.samples) / form.rate
    told = [Segment(s["start"], s["end"], s["text"]) for s in found.get("segments", [])]
    told = told or [Segment(0.0, seconds, found["output"])]
    return FORMATS[asked.response_format](found["output"], told, seconds)


def checked(asked: schema.Transcription) -> dict[str, object]:
    """How it is answered; what cannot be followed is refused."""
    if asked.language not in (None, "", "en", "english"):
        raise InputError(f"language: this run writes what it was trained to, not {asked.language}.")
    try:
        warmth = float(asked.temperature or 0)
    except ValueError as error:
        raise InputError("temperature: must be a number.") from error
    if not 0 <= warmth <= 2:
        raise InputError("temperature: must be from 0 to 2.")
    timed = asked.response_format in ("srt", "vtt", "verbose_json")
    parameters: dict[str, object] = {"timestamps": "always"} if timed else {}
    return parameters | ({"kind": "sample", "temperature": warmth} if warmth else {})


def read_file(form: SoundForm, sent: dict[str, object]) -> GivenSound:
    url = sent.get("file")
    if not isinstance(url, str):
        raise InputError("file: there must be an uploaded sound, but there is none.")
    return form.accept({"audio": url.replace("data:file/", "data:audio/", 1)})


def as_json(text: str, told: Sequence[Segment], seconds: float) -> Response:
    return JSONResponse({"text": text})


def as_text(text: str, told: Sequence[Segment], seconds: float) -> Response:
    return PlainTextResponse(f"{text}\n")


def as_verbose(text: str, told: Sequence[Segment], seconds: float) -> Response:
    rows = [
        {"id": number, "start": start, "end": end, "text": said}
        for number, (start, end, said) in enumerate(told)
    ]
    # Which language it is, no run says; OpenAI's client wants a word.
    whole = {"task": "transcribe", "language": "unknown", "duration": round(seconds, 3)}
    return JSONResponse({**whole, "text": text, "segments": rows})


def as_srt(text: str, told: Sequence[Segment], seconds: float) -> Response:
    rows = [
        f"{number}\n{clock(start, ',')} --> {clock(end, ',')}\n{said}\n"
        for number, (start, end, said) in enumerate(told, 1)
    ]
    return PlainTextResponse("\n".join(rows))


def as_vtt(text: str, told: Sequence[Segment], seconds: float) -> Response:
    rows = [f"{clock(start, '.')} --> {clock(end, '.')}\n{said}\n" for start, end, said in told]
    return PlainTextResponse("\n".join(["WEBVTT\n", *rows]))


def clock(seconds: float, point: str) -> str:
    """Hours, minutes, seconds and thousandths."""
    whole = round(seconds * 1000)
    minutes, rest = divmod(whole, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"


FORMATS = {
    "json": as_json,
    "text": as_text,
    "verbose_json": as_verbose,
    "srt": as_srt,
    "vtt": as_vtt,
}
