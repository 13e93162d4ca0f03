"""A form with files, as `curl -F` and browsers send it, as the JSON that it stands for."""

from __future__ import annotations

import base64
import json
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP

from ..errors import InputError

MOST_PARTS = 128


def is_upload(content_type: bytes) -> bool:
    return content_type.lower().startswith(b"multipart/form-data")


def as_json(content_type: bytes, body: bytes) -> bytes:
    """Files as data: URLs, a list of them under `inputs`; `parameters` is JSON already."""
    head = b"Content-Type: " + content_type.replace(b"\r", b"").replace(b"\n", b"") + b"\r\n\r\n"
    form = BytesParser(policy=HTTP).parsebytes(head + body)
    parts = form.get_payload()
    if not isinstance(parts, list) or not form.is_multipart() or form.defects:
        raise InputError("body: it must be a readable form, but is not.")
    if len(parts) > MOST_PARTS:
        raise InputError(f"body: at most {MOST_PARTS} fields, but there are {len(parts)}.")
    said: dict[str, object] = {}
    files = []
    for part in parts:
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise InputError("body: every field of the form must have a name.")
        if part.get_filename() is not None:
            # What kind of picture or sound it is, those who decode it see for themselves.
            files.append({name: f"data:{name}/file;base64,{base64.b64encode(content).decode()}"})
            continue
        text = content.decode("utf-8", "replace")
        said[name] = read_field(text, name) if name == "parameters" else text
    return json.dumps({**said, **({"inputs": files} if files else {})}).encode()


def read_field(text: str, name: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{name}: it must be readable JSON, but is not.") from error
