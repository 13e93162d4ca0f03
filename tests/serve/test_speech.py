"""Sound over HTTP: OpenAI's transcriptions by its own client, and a page that listens."""

import base64
import io
import re
import tarfile

import numpy as np
import openai
import pytest
import soundfile
from playwright.sync_api import expect

import regard
from regard.serve.limits import ServerLimits
from tests.serve.conftest import Served, shot
from tests.tasks.test_speech import FOLDER, LESS


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """A server with a run that has learned a little, and a clip."""
    folder = tmp_path_factory.mktemp("heard")
    short = [one for one in LESS if not one.startswith(("train.steps", "train.evaluate"))]
    more = ("train.steps=60", "train.evaluate_every=60", "data.test=", "data.valid=")
    regard.train("speech-digits", *short, *more, run=folder / "digits")
    with tarfile.open(FOLDER / "valid.tar.gz") as tar:
        tar.extract("003.ogg", folder, filter="data")
    server = Served([folder / "digits"], ServerLimits(seconds=30))
    yield server, folder / "003.ogg"
    server.close()


@pytest.fixture
def client(heard):
    return openai.OpenAI(base_url=f"{heard[0].url}/v1", api_key="none", max_retries=0)


def test_openais_client_is_answered_in_every_format(heard, client):
    server, path = heard
    ask = client.audio.transcriptions.create
    said = server.hosted[0].run.predict([str(path)])[0].output
    assert ask(model="digits", file=path).text == said
    assert ask(model="digits", file=path, response_format="text").strip() == said
    whole = ask(model="digits", file=path, response_format="verbose_json", language="en")
    seconds = soundfile.info(path).duration
    assert whole.text == said and whole.duration == pytest.approx(seconds, abs=0.01)
    assert [(one.start, one.text) for one in whole.segments] == [(0.0, said)]
    assert whole.segments[0].end == pytest.approx(seconds, abs=0.01)
    first, times, text = ask(model="digits", file=path, response_format="srt").split("\n")[:3]
    assert (first, text) == ("1", said) and times.startswith("00:00:00,000 --> 00:00:0")
    head = ask(model="digits", file=path, response_format="vtt").splitlines()
    assert head[0] == "WEBVTT" and head[2].startswith("00:00:00.000 --> ")
    drawn = ask(model="digits", file=path, temperature=0.7)
    assert isinstance(drawn.text, str)


def test_what_cannot_be_is_told_in_a_sentence(heard, client):
    server, path = heard
    ask = client.audio.transcriptions.create
    for more, told in (
        ({"language": "fr"}, "language: this run writes what it was trained to, not fr."),
        ({"temperature": 3.0}, "temperature: must be from 0 to 2."),
        ({"response_format": "xml"}, "response_format"),
        ({"file": ("a.wav", b"RIFF")}, "no sound ("),
    ):
        with pytest.raises(openai.UnprocessableEntityError) as error:
            ask(**{"model": "digits", "file": path, **more})
        assert told in error.value.message
    with server.client() as plain:
        missing = plain.post("/v1/audio/transcriptions", json={"model": "digits"})
        assert missing.status_code == 422 and "inputs" in missing.json()["error"]["message"]
        odd = plain.post("/v1/audio/transcriptions", json={"inputs": [{"file": 7}]})
        assert odd.json()["error"]["message"].startswith("file: there must be an uploaded sound")
        fused = plain.post("/predict", json={"inputs": "x", "parameters": {"fusion": "/etc"}})
        assert "parameters.fusion: no such setting" in fused.json()["error"]["message"]
        named = plain.post("/predict", json={"inputs": str(path)})  # no file is opened by its name
        assert named.status_code == 422 and "as a data: URL" in named.json()["error"]["message"]


def test_a_run_of_texts_hears_nothing(served, heard):
    ask = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.UnprocessableEntityError, match="reads no sound"):
        ask.audio.transcriptions.create(model="toy", file=heard[1])


def test_a_sound_is_sent_as_a_form_too(heard):
    server, path = heard
    url = f"data:audio/ogg;base64,{base64.b64encode(path.read_bytes()).decode()}"
    with server.client() as client:
        (told,) = client.post("/predict", json={"inputs": [{"audio": url}]}).json()
        answer = client.post("/predict", files=[("audio", ("a.ogg", path.read_bytes()))]).json()
        assert answer[0]["output"] == told["output"]
        looked = client.post("/attention", json={"input": {"audio": url}}).json()
        assert looked["picture"].startswith("data:image/png") and looked["looks"]


def test_drop_a_sound_and_see_where_each_word_was_heard(page, heard):
    server, path = heard
    page.goto(server.url)
    page.set_input_files("#file", path)
    expect(page.locator("#heard")).to_be_visible()
    said = server.hosted[0].run.predict([str(path)])[0].output
    page.click("#go")
    expect(page.locator("#answer")).to_have_text(said)
    assert "-F 'audio=@003.ogg'" in page.text_content("#curl")
    page.wait_for_selector("[role=tab][data-view=sound]")
    expect(page.locator("#views table.heard img")).to_be_visible()
    rows = page.locator("#views table.heard canvas")
    expect(rows).to_have_count(len(said.split()) + 1)  # and the end
    inked = "one => one.getContext('2d').getImageData(0, 0, one.width, 1).data.some(x => x > 0)"
    assert rows.first.evaluate(inked)
    shot(page, "sound")


def test_the_microphone_is_heard(page, heard):
    server, _ = heard
    page.goto(server.url)
    page.click("#record")
    expect(page.locator("#record")).to_have_text("stop")
    page.wait_for_timeout(1500)
    page.click("#record")
    expect(page.locator("#heard")).to_have_attribute("src", re.compile("^data:audio/wav"))
    content = base64.b64decode(page.locator("#heard").get_attribute("src").partition(",")[2])
    recorded, rate = soundfile.read(io.BytesIO(content))
    assert rate == 16000 and 0.5 < len(recorded) / rate < 4 and np.abs(recorded).max() > 0.01
    page.click("#go")
    expect(page.locator("#speed")).not_to_have_text("", timeout=20_000)
