"""The page in a real browser: type, read the answer, look inside, change, hover, ablate."""

import re

from playwright.sync_api import expect

from tests.serve.conftest import shot

EVIL = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
STYLE = "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] }"


def test_type_a_sentence_see_the_translation_and_who_looked_at_whom(page, served, trained):
    page.goto(served.url)
    page.select_option("#run", "toy")
    page.fill("#text", "two red cats")
    page.click("#go")
    wanted = trained.predict(["two red cats"])[0].output
    expect(page.locator("#answer")).to_have_text(wanted)
    for name in ("#curl", "#python"):
        assert "two red cats" in page.locator(name).evaluate("e => e.value || e.textContent")
    page.check("#ablate")
    page.click("#look")
    page.wait_for_selector("[role=tab][data-view=heads]")
    page.select_option('[data-key="kind"]', "decoder.cross")
    token = page.locator('button.token[data-side="row"]').first
    token.hover()
    said = page.inner_text("#views p.said").strip()
    assert said
    shot(page, "heads")
    for view in ("all", "matrix", "step", "generation", "ablation", "statistics"):
        page.click(f"[role=tab][data-view={view}]")
        assert page.inner_text("#views").strip()
        shot(page, view)
    assert "view=statistics" in page.url, "a permalink holds the state"
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("[role=tab][data-view=statistics][aria-selected=true]")


def test_a_language_model_streams_and_shows_its_chances(page, served):
    page.goto(served.url)
    page.select_option("#run", "writer")
    page.fill("#text", "ROMEO:")
    page.fill("#max_tokens", "40")
    page.fill("#temperature", "1")
    page.fill("#seed", "3")
    page.click("#go")
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
    for knobs in ({}, {"temperature": "2", "seed": "5"}, {"temperature": "0", "seed": ""}):
        for name, value in knobs.items():
            page.fill(f"#{name}", value)
        page.fill("#text", "nine green dogs and one red cats")
        with page.expect_response("**/v1/completions"):
            page.click("#go")
        expect(page.locator("#speed")).to_contain_text("tokens")
        expect(page.locator("#stop")).to_be_disabled()
        answer = page.inner_text("#answer")
        with page.expect_response("**/attention") as second:
            page.click("#look")
        looked = second.value.json()
        assert looked["output"] == answer and looked["model"] == "toy"
        if not knobs:
            assert answer == trained.predict(["nine green dogs and one red cats"])[0].output
            assert any(node["final"] for node in looked["generation"]["beam"]["nodes"])
        else:
            assert "beam" not in looked["generation"]
    expect(page.locator("#manner")).to_contain_text("the likeliest word each time")
    page.fill("#text", "ten cats")  # other words: the answer above is none of theirs
    with page.expect_response("**/attention") as third:
        page.click("#look")
    assert third.value.json()["output"] != answer
    page.fill("#temperature", "")
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
    import json
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
    for view in ("matrix", "heads"):
        took = page.evaluate(
            "v => { const t = performance.now();"
            " document.querySelector(`[role=tab][data-view=${v}]`).click();"
            " return performance.now() - t }",
            view,
        )
        assert took < 3000, (view, took)


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
