"""The page in a real browser: type, read the answer, look inside, change, hover, ablate."""

import json
import math
import re
import shutil
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

import regard
from regard.serve import about
from tests.serve.conftest import shot

EVIL = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
STYLE = "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] }"


def looked_at(text):
    """An answer of /attention that is of this text, and not of an example that was shown before."""

    def fits(answer):
        return answer.url.endswith("/attention") and text in (answer.request.post_data or "")

    return fits


def test_type_a_sentence_see_the_translation_and_who_looked_at_whom(page, served, trained):
    page.goto(served.url)
    page.select_option("#run", "toy")
    page.fill("#text", "two red cats")
    page.click("#go")
    wanted = trained.predict(["two red cats"])[0].output
    expect(page.locator("#answer")).to_have_text(wanted)
    for name in ("#curl", "#python"):
        assert "two red cats" in page.locator(name).evaluate("e => e.value || e.textContent")
    page.wait_for_selector("[role=tab][data-view=heads]")
    page.select_option('[data-key="kind"]', "decoder.cross")
    token = page.locator('button.token[data-side="row"]').first
    token.hover()
    said = page.inner_text("#views p.said").strip()
    assert said
    shot(page, "heads")
    for view in ("all", "matrix", "story", "step", "generation", "ablation", "statistics"):
        page.click(f"[role=tab][data-view={view}]")
        assert page.inner_text("#views").strip()
        shot(page, view)
        if view == "ablation":
            page.click("#ablate")
            expect(page.locator("#views .gauge").first).to_be_visible()
    assert "view=statistics" in page.url, "a permalink holds the state"
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("[role=tab][data-view=statistics][aria-selected=true]")


def test_a_language_model_streams_and_shows_its_chances(page, served):
    page.goto(served.url)
    page.select_option("#run", "writer")
    page.click("#knobs summary")
    page.fill("#text", "ROMEO:")
    page.fill("#max_tokens", "40")
    page.fill("#temperature", "1")
    page.fill("#seed", "3")
    page.click("#go")
    expect(page.locator("#speed")).to_contain_text("seed 3")
    expect(page.locator("#answer .piece").nth(10)).to_be_attached()
    page.locator("#answer .piece:visible").first.hover()
    assert page.inner_text("#chance").strip()
    assert re.search(r"\d", page.inner_text("#speed"))
    shot(page, "playground")


def test_what_is_explained_is_the_answer_that_was_given(page, served, trained):
    """Found by the run's own way, or as the controls say, which show what is used."""
    page.goto(served.url)
    page.select_option("#run", "toy")
    expect(page.locator("#manner")).to_contain_text("searched by a beam of 3")
    page.uncheck("#live")  # and the example is drawn, so that nothing is on its way any more
    expect(page.locator("#views .lines")).to_be_visible()
    page.click("#knobs summary")
    page.fill("#text", "nine green dogs and one red cats")
    ways = (
        {},
        {"temperature": "2", "seed": "5"},
        {"temperature": "0", "seed": ""},
        {"num_beams": "2", "temperature": ""},
    )
    for knobs in ways:
        for name, value in knobs.items():
            page.fill(f"#{name}", value)
        with page.expect_response(looked_at("nine green dogs")) as second:
            page.click("#go")
        expect(page.locator("#stop")).to_be_disabled()
        looked, answer = second.value.json(), page.text_content("#answer")
        assert looked["output"] == answer and looked["model"] == "toy"
        if not knobs or "num_beams" in knobs:
            assert any(node["final"] for node in looked["generation"]["beam"]["nodes"])
        else:
            assert "beam" not in looked["generation"]
        if not knobs:
            assert answer == trained.predict(["nine green dogs and one red cats"])[0].output
    expect(page.locator("#manner")).to_contain_text("searched by a beam of 2")
    page.fill("#num_beams", "1")
    expect(page.locator("#manner")).to_contain_text("the likeliest word each time")
    page.fill("#num_beams", "")
    page.select_option("#run", "writer")
    own = served.hosted[1].run.recipe.decode
    expect(page.locator("#manner")).to_contain_text(f"drawn at temperature {own.temperature:g}")
    expect(page.locator("#manner")).to_contain_text("a new seed each time")


def test_what_a_model_writes_is_text_and_nothing_else(page, served):
    page.goto(served.url)
    hosted = served.hosted[2]
    real = hosted.task.predict

    def predict(model, inputs, *more):
        import dataclasses

        answer = real(model, inputs, *more)[0]
        return [dataclasses.replace(answer, output=EVIL)]

    hosted.task.predict = predict
    try:
        page.select_option("#run", "judge")
        page.fill("#text", "fine")
        page.click("#go")
        expect(page.locator("#answer")).to_contain_text("<script>")
        assert page.evaluate("() => window.hacked") is None
    finally:
        hosted.task.predict = real


def test_the_file_works_alone_and_by_keyboard(page, trained, tmp_path):
    from dataclasses import replace

    from regard.see.ablate import ablate

    sight = replace(trained.see("two red cats"), ablation=ablate(trained, "two red cats", 4))
    path = sight.save(tmp_path / "see.html")
    page.goto(path.as_uri())
    page.wait_for_selector("[role=tab][data-view=heads]")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement !== document.body")
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.query_selector("[role=tab][data-view=heads][aria-selected=true]") is None
    page.click("[role=tab][data-view=ablation]")
    assert "bleu" in page.inner_text("#views").lower()
    shot(page, "alone-ablation")
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        ink, paper = page.evaluate(STYLE)
        assert contrast(ink, paper) > 7, (scheme, ink, paper)
    shot(page, "alone")


def test_a_thousand_tokens_stay_responsive(page, tmp_path):
    import random

    from regard.see import page as pages

    chance = random.Random(0)
    size = 1000
    names = [f"▁w{i}" for i in range(size)]
    row = [[round(chance.random(), 3) for _ in range(size)] for _ in range(size)]
    look = {"name": "blocks.0.attention", "kind": "blocks.attention", "layer": 0, "rows": names,
            "columns": names, "weights": [row]}  # fmt: skip
    data = {"input": "x", "output": "", "task": "language", "model": "gpt", "looks": [look]}
    path = tmp_path / "long.html"
    path.write_text(pages.standalone(json.loads(json.dumps(data))), encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("[role=tab][data-view=matrix]")
    # Not all of a million weights become elements: what is drawn at once stays bounded.
    for view, drawn in (("matrix", 1), ("heads", 1000)):
        page.click(f"[role=tab][data-view={view}]")
        assert page.locator("#views .lines .every path, #views .heatmap").count() == drawn
        assert page.evaluate("() => document.querySelectorAll('*').length") < 6000
    page.locator('.token[data-side="row"]').nth(3).hover()
    assert page.locator("#views .lines .own path").count() <= 1000


def contrast(ink, paper):
    def light(colour):
        parts = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
        parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    a, b = sorted((light(ink), light(paper)))
    return (b + 0.05) / (a + 0.05)


def test_a_deeper_look_is_drawn(page, served):
    """A receptive field, points by layer, a word's senses and what heads look at, by clicking."""
    page.goto(served.url)
    page.select_option("#run", "toy")
    page.fill("#text", "two red cats")
    page.click("#deeper summary")
    page.fill("#token", "red")
    sentences = "two red cats\nthe red dog\na red cat"
    for view in ("field", "layers", "word", "heads"):
        page.select_option("#view", view)
        if view in ("word", "heads"):
            page.fill("#sentences", sentences)
        page.click("#inspect")
        told = page.locator("#view option:checked").inner_text()
        drawn = page.locator(f'#drawn img[alt^="{told}"]')
        drawn.wait_for()
        assert drawn.evaluate("e => e.decode().then(() => e.naturalWidth)") > 100
        shot(page, f"deeper-{view}")


def first_of(served, model):
    with served.client() as client:
        return client.get(f"/examples?model={model}").json()["examples"]


def test_the_first_screen_has_an_answer_and_its_drawing(page, served, trained):
    """Nothing is clicked: an example of the run's own data is answered and drawn."""
    page.goto(served.url)
    examples = first_of(served, "toy")
    assert len(examples) == 3 and all(one["wanted"] for one in examples)
    expect(page.locator("#answer")).to_have_text(trained.predict([examples[0]["input"]])[0].output)
    expect(page.locator("#examples .chip")).to_have_count(3)
    expect(page.locator("#about")).to_contain_text("translates English → French")
    expect(page.locator("#views .lines .every path").first).to_be_attached()
    for shown in ("#text", "#answer", "#views .lines", "#views .heatmap", "#views .map"):
        box = page.locator(shown).bounding_box()
        assert box["y"] + box["height"] <= 900 and box["x"] + box["width"] <= 1280, (shown, box)
    page.locator("#examples .chip").nth(1).click()
    expect(page.locator("#answer")).to_have_text(trained.predict([examples[1]["input"]])[0].output)
    shot(page, "first-screen")


def test_a_word_lights_its_counterparts_everywhere(page, served):
    page.goto(served.url)
    word = page.locator("#answer .word").nth(1)
    matrix = "() => document.querySelector('#views .heatmap').toDataURL()"
    word.wait_for()
    before = page.evaluate(matrix)
    word.hover()
    name = word.get_attribute("data-word")
    for place in ("#answer", "#views .side.from"):
        expect(page.locator(f"{place} [data-word='{name}']")).to_have_class(re.compile(r"\bon\b"))
    for place in ("#reading", "#views .side.to"):
        assert page.locator(f"{place} .lit").count() > 0
    assert page.locator("#views .lines .own path").count() > 0
    assert page.evaluate(matrix) != before, "the matrix frames the row"
    page.locator("#reading .word").nth(1).hover()
    expect(page.locator("#views .side.to .on")).to_have_count(1)
    page.mouse.move(5, 5)
    expect(page.locator(".on, .lit")).to_have_count(0)


def test_the_answer_follows_and_what_is_overtaken_is_cancelled(page, served):
    """What was still being written frees its place on the server."""
    page.goto(f"{served.url}#run=writer")
    expect(page.locator("#speed")).to_contain_text("tokens")
    engine, aborted = served.hosted[1].engine, []
    page.on("requestfailed", lambda request: aborted.append(request.post_data_json["prompt"]))
    page.click("#knobs summary")
    page.fill("#max_tokens", "400")
    page.fill("#num_beams", "16")
    with page.expect_request(lambda request: "ROMEO: slow" in (request.post_data or "")):
        page.fill("#text", "ROMEO: slow")
    while engine.load["rows"] < 16:
        page.wait_for_timeout(5)
    page.fill("#max_tokens", "12")
    page.fill("#num_beams", "")
    with page.expect_response(looked_at("ROMEO: quick")):
        page.fill("#text", "ROMEO: quick")
    expect(page.locator("#speed")).to_contain_text("tokens")
    assert "ROMEO: slow" in aborted
    while any(engine.load.values()):
        page.wait_for_timeout(5)
    # What it wrote is looked at, not the prompt alone.
    expect(page.locator("#answer .piece[data-word]").first).to_be_attached()


def test_the_story_of_a_head_adds_up(page, served):
    """Products, scaled, are its scores; the softmax of those its shares, and those the weights."""
    page.goto(served.url)
    page.wait_for_selector("[role=tab][data-view=story]")
    with page.expect_response(lambda answer: "vectors" in (answer.request.post_data or "")) as told:
        page.click("[role=tab][data-view=story]")
    (look,) = [one for one in told.value.json()["looks"] if one["kind"] == "decoder.cross"]
    page.click("[data-stage=mix]")
    read = "all => all.map(cell => Number(cell.dataset.value))"
    scores = page.locator("#views td.score").evaluate_all(read)
    shares = page.locator("#views td.share").evaluate_all(read)
    powers = [math.exp(score - max(scores)) for score in scores]
    assert shares == pytest.approx([power / sum(powers) for power in powers], abs=1e-6)
    assert shares == pytest.approx(look["weights"][0][0], abs=1e-3)
    query, keys = look["queries"][0][0], look["keys"][0]
    products = [sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    assert scores == pytest.approx([product * look["scale"] for product in products], abs=1e-2)
    page.focus("[data-stage=mix]")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator("[data-stage=softmax]")).to_have_attribute("aria-current", "step")
    shot(page, "story")


def test_heads_have_the_names_that_regard_heads_gives_them(page, served):
    run, text = served.hosted[2].run, "The plot was dull , and the plot was long ."
    page.goto(f"{served.url}#run=judge&view=all&words=0")
    page.fill("#text", text)
    page.click("#go")
    rows = run.heads([text]).data()["heads"]
    edges, scores = (0.5, 0.8), set(rows[0]) - {"layer", "head", "kind"}
    clear = [
        row
        for row in rows  # what stands at an edge may fall on either side of it by rounding
        if all(abs((row[name] or 0) - edge) > 0.01 for name in scores for edge in edges)
    ]
    assert clear
    for row in clear:
        small = page.locator(f"[data-key='small {row['layer']} {row['head']}']")
        expect(small).to_have_attribute("data-kind", row["kind"])


def test_light_and_dark_by_a_switch(page, served):
    page.goto(served.url)
    page.wait_for_selector("#views .heatmap")
    matrix = "() => document.querySelector('#views .heatmap').toDataURL()"
    light = page.evaluate(matrix)
    page.click("#theme")
    ink, paper = page.evaluate(STYLE)
    assert contrast(ink, paper) > 7 and contrast("255 255 255", paper) > 7
    assert page.evaluate(matrix) != light
    shot(page, "dark")
    page.reload()
    assert page.evaluate(STYLE) == [ink, paper], "it is remembered"
    page.wait_for_selector("#theme")
    page.click("#theme")
    assert contrast("0 0 0", page.evaluate(STYLE)[1]) > 7


@pytest.mark.parametrize("width", [390, 3840])
def test_nothing_is_wider_than_the_screen(page, served, width):
    page.set_viewport_size({"width": width, "height": 844 if width == 390 else 2160})
    page.goto(served.url)
    page.wait_for_selector("[role=tab]")
    views = page.locator("[role=tab]").evaluate_all("all => all.map(tab => tab.dataset.view)")
    for view in views:
        page.click(f"[role=tab][data-view={view}]")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, view
    page.click("[role=tab][data-view=heads]")
    shot(page, f"width-{width}")


@pytest.mark.parametrize("view", ["heads", "story", "statistics", "generation"])
def test_a_drawing_is_saved_as_an_image(page, served, tmp_path, view):
    page.goto(f"{served.url}#view={view}")
    page.wait_for_selector("#views [data-key=save]")
    with page.expect_download() as saved:
        page.click("#views [data-key=save]")
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    drawn = ElementTree.parse(path).getroot()
    assert path.name == f"{view}.svg" and drawn.tag == "{http://www.w3.org/2000/svg}svg"
    said = " ".join(drawn.itertext())
    words = {"heads": "<eos>", "story": "Softmax", "statistics": "entropy", "generation": "start"}
    assert words[view] in said
    assert "class=" not in path.read_text(encoding="utf-8"), "it needs no style sheet"


def test_everything_is_reached_by_keys(page, served):
    page.goto(served.url)
    page.wait_for_selector("#views .map")
    page.fill("#text", "two red cats")
    with page.expect_response(looked_at("two red cats")):
        page.keyboard.press("Control+Enter")
    expect(page.locator("#stop")).to_be_disabled()
    page.locator("#views .token").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#views .side.from .on")).to_have_attribute("data-at", "1")
    page.focus("#views .thumb[tabindex='0']")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    last = page.locator("#views .thumb").last
    expect(last).to_have_attribute("aria-pressed", "true")
    expect(last).to_be_focused()
    page.focus("#views .heatmap")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#views .said")).to_contain_text("of its attention")


def test_texts_are_held_against_each_other(page, served):
    page.goto(f"{served.url}#run=vectors")
    page.fill("#text", "A man is eating food.")
    page.fill("#second", "A man eats.\nThe sky is blue.")
    page.click("#go")
    rows = page.locator("#cosines tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("A man eats.")


def test_how_a_run_was_trained_and_what_a_server_can_be_asked(page, served):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served.url)
    page.click("#curves")
    expect(page.locator("#training svg").first).to_be_visible()
    expect(page.locator("#training")).to_contain_text("bleu on validation data")
    page.goto(f"{served.url}/docs")
    expect(page.locator("#routes")).to_contain_text("POST /attention")
    assert all(url.startswith((served.url, "data:")) for url in asked)


def test_where_the_data_are_gone_the_card_has_an_example(trained, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(trained.folder, folder)
    gone = [f'data.{part}=["gone.en", "gone.fr"]' for part in ("train", "valid", "test")]
    moved = regard.load(folder, *gone)
    (offered,) = about.examples(moved)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert offered["input"] in card and offered["wanted"] is None
    (folder / "README.md").unlink()
    assert about.examples(moved) == []
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"event": "st')  # killed while it wrote
    assert about.training(folder)["steps"][0]["step"] == 1
    (folder / "metrics.jsonl").unlink()
    assert about.training(folder) == {"steps": [], "scored": []}
