"""Pictures over HTTP: sent as a data: URL or a form, dropped on the page, looked into."""

import base64
import io
import json

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

import regard
from regard.errors import InputError
from regard.serve.limits import ServerLimits
from regard.serve.upload import as_json
from tests.serve.conftest import Served, shot
from tests.tasks.test_pictures import RECIPE, write_set


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("colours")
    write_set(folder / "set")
    (folder / "p.toml").write_text(RECIPE)
    regard.train(str(folder / "p.toml"), run=folder / "run")
    server = Served([folder / "run"], ServerLimits(seconds=30))
    yield server, folder / "set/green/01.png"
    server.close()


def test_a_picture_is_sent_as_text_or_as_a_file(colours):
    server, path = colours
    url = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    with server.client() as client:
        (told,) = client.post("/predict", json={"inputs": [{"image": url}]}).json()
        answer = client.post(
            "/predict",
            files=[("image", ("a.png", path.read_bytes())) for _ in range(2)],
            data={"model": "run", "parameters": "{}"},
        )
        assert [one["label"] for one in answer.json()] == ["green", "green"]
        assert answer.json()[0]["probabilities"] == told["probabilities"]
        for files in ({"image": b"no picture"}, {"sound": path.read_bytes()}):
            assert client.post("/predict", files=files).status_code == 422
        head = {"Content-Type": "multipart/form-data; boundary=x"}
        said = client.post("/predict", content=b"--y\r\n", headers=head)
        assert said.status_code == 422
        assert said.json()["error"]["message"] == "body: it must be a readable form, but is not."
        large = client.post("/predict", files={"image": bytes(2**25)})
        assert large.status_code == 413


def test_a_form_keeps_every_byte():
    content = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8).tobytes()
    content += b"\r\n--half a boundary\r\n\n\r"
    files = [("image", ("ä 'odd' name.png", io.BytesIO(content), "image/png"))]
    asked = httpx.Request("POST", "http://x", files=files, data={"model": "größer"})
    said = json.loads(as_json(asked.headers["content-type"].encode(), asked.read()))
    assert said["model"] == "größer"
    assert base64.b64decode(said["inputs"][0]["image"].partition(",")[2]) == content
    for kind in (b"multipart/form-data", b"multipart/form-data; boundary=other"):
        with pytest.raises(InputError, match="readable form"):
            as_json(kind, asked.read())


def test_drop_a_picture_and_see_where_the_model_looked(page, colours):
    server, path = colours
    page.goto(server.url)
    page.set_input_files("#file", path)
    expect(page.locator("#seen")).to_be_visible()
    page.click("#go")
    expect(page.locator("#answer")).to_have_text("green")
    assert "-F 'image=@01.png'" in page.text_content("#curl")
    page.wait_for_selector("[role=tab][data-view=heads]")
    panels = page.locator("#views .panel .seen")
    expect(panels).to_have_count(1 + 1 + 2)  # the patch chosen, all layers, two heads
    inked = "one => one.getContext('2d').getImageData(0, 0, 2, 2).data.some(x => x > 0)"
    assert page.locator("#views .panel canvas").nth(1).evaluate(inked)
    expect(page.locator("#views .hint")).to_contain_text("[class]")
    page.locator("#views button.panel").click(position={"x": 20, "y": 20})
    expect(page.locator("#views .hint")).to_contain_text("1,1")
    shot(page, "picture")
    page.goto(server.url)
    page.wait_for_selector("#drop")
    page.evaluate(
        """async raw => {
          const bytes = Uint8Array.from(atob(raw), one => one.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
          const drop = document.getElementById("drop");
          drop.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }""",
        base64.b64encode(path.read_bytes()).decode(),
    )
    expect(page.locator("#seen")).to_be_visible()
    page.evaluate(
        """async raw => {
          const bytes = Uint8Array.from(atob(raw), one => one.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
          dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
        }""",
        base64.b64encode(path.read_bytes()).decode(),
    )
    expect(page.locator("#drop")).to_contain_text("pasted.png")
    page.click("#go")
    expect(page.locator("#answer")).to_have_text("green")
