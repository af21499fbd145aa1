"""The page of a report in a real browser, by Playwright: looking for examples with the
pointer and the keyboard, without a script, and on a phone.
"""

import json
import re

import numpy as np
import pytest
import test_report
from accessibility import findings, needs_axe
from PIL import Image

import vmapseeds as vs

pytestmark = pytest.mark.slow
RUNS, EXAMPLES = 60, 200
NAMES = ["ant", "bee", "cat", "dog"]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
  """Runs whose first half has example 150 wrong and is worse besides, and their page."""
  results = test_report.dataset(runs=RUNS, n=EXAMPLES, classes=4, spread=0.02)
  predictions, labels = results.predictions.values, results.labels.values
  predictions[:, 100:160] = labels[100:160]
  predictions[:30, 100:140] = (labels[100:140] + 1) % 4
  predictions[30:, 150] = (labels[150] + 2) % 4
  folder = tmp_path_factory.mktemp("browser")
  results = vs.import_runs(
    folder / "r",
    predictions=predictions,
    labels=labels,
    class_names=NAMES,
    progress=False,
  )
  images = np.random.default_rng(0).random((EXAMPLES, 8, 8))
  vs.report(folder / "r", images=images).save()
  return predictions, labels, folder / "r" / "report" / "report.html"


@pytest.fixture
def opened(browser, reported):
  """Opens the page in a new context, and fails on any message and any request."""
  said, contexts = [], []

  def visit(**how):
    contexts.append(context := browser.new_context(**how))
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
      "request",
      lambda request: re.match("file:|data:", request.url) or said.append(request.url),
    )
    page.goto(reported[2].as_uri())
    return page

  yield visit
  for context in contexts:
    context.close()
  assert said == []


def shown(page) -> list[int]:
  """The examples of the cards, in their order."""
  titles = page.locator(".explore .card strong").all_inner_texts()
  return [int(re.match(r"#(\d+)", title)[1]) for title in titles]


def status(page) -> str:
  return page.locator("[role=status]").inner_text()


def test_all_are_there_hardest_first(opened, reported):
  predictions, labels, _ = reported
  page = opened()
  rates = (predictions != labels).mean(0)
  assert status(page) == f"{(rates > 0).sum()} of {(rates > 0).sum()} examples"
  found = shown(page)
  assert len(found) == 24
  assert rates[found].tolist() == sorted(rates, reverse=True)[:24]
  text = page.locator(".explore .card").first.inner_text().replace("\u00a0", " ")
  agree = vs.example_table(
    vs.open_results(reported[2].parents[1])
  ).dataset.agreement.values
  assert f"wrong in {100 * rates[found[0]]:.1f} %" in text
  assert f"agree {100 * agree[found[0]]:.1f} %" in text
  assert f"#{found[0]}, label {NAMES[labels[found[0]]]}" in text
  voted = np.bincount(predictions[:, found[0]]).argmax()
  assert f"{NAMES[voted]}: " in text


def test_filters_and_order(opened, reported):
  predictions, labels, folder = reported
  page = opened()
  rates = (predictions != labels).mean(0)
  page.get_by_label("wrong at least %").fill("20")
  page.get_by_label("wrong at most %").fill("60")
  page.locator("[name=label]").select_option("cat")
  expected = (rates >= 0.2) & (rates <= 0.6) & (labels == 2)
  assert status(page).startswith(f"{expected.sum()} of ")
  page.get_by_label("order").select_option("by number")
  assert shown(page) == np.flatnonzero(expected)[:24].tolist()
  agree = vs.example_table(vs.open_results(folder.parents[1])).dataset.agreement.values
  page.get_by_label("agree at most %").fill("60")
  few = np.flatnonzero(expected & (agree <= 0.6))
  assert shown(page) == few[:24].tolist()
  page.get_by_label("order").select_option("least agreement first")
  np.testing.assert_allclose(agree[shown(page)], np.sort(agree[few])[:24])
  page.get_by_role("button", name="Reset").click()
  assert status(page).startswith(f"{(rates > 0).sum()} of ")
  page.get_by_label("order").select_option("likely mislabelled first")
  table = vs.example_table(vs.open_results(folder.parents[1])).dataset
  shares = table.other_share.values
  assert shares[shown(page)].tolist() == sorted(shares, reverse=True)[:24]


def test_a_confusion_is_clicked(opened, reported):
  predictions, labels, _ = reported
  page = opened()
  buttons = page.locator(".confusions button")
  button = buttons.nth(2)
  names = re.match(r"(\w+) → (\w+)", button.inner_text()).groups()
  label, voted = map(NAMES.index, names)
  button.click()
  expected = (labels == label) & (predictions == voted).any(0)
  assert status(page).startswith(f"{expected.sum()} of ")
  assert {*shown(page)} <= {*np.flatnonzero(expected)}
  assert button.get_attribute("aria-pressed") == "true"
  assert page.get_by_label("wrongly taken for").input_value() == str(voted)
  button.click()
  assert button.get_attribute("aria-pressed") == "false"
  assert status(page).startswith(f"{(predictions != labels).any(0).sum()} of ")


def test_runs_are_chosen_with_the_pointer(opened, reported):
  predictions, labels, _ = reported
  page = opened()
  svg = page.locator(".histogram")
  svg.scroll_into_view_if_needed()
  box = svg.bounding_box()
  y = box["y"] + box["height"] / 2
  page.mouse.move(box["x"] + 2, y)
  page.mouse.down()
  page.mouse.move(box["x"] + 0.3 * box["width"], y)
  page.mouse.up()
  said = page.locator("output").inner_text().replace("\u00a0", " ")
  count, low, high = map(
    float, re.match(r"(\d+) of 60 runs, accuracy (.*) % to (.*) %", said).groups()
  )
  errors = predictions != labels
  accuracy = 100 * (1 - errors.mean(1))
  chosen = (accuracy >= low - 0.06) & (accuracy < high + 0.06)
  assert 0 < chosen.sum() == count < RUNS
  # The examples that tell the runs apart are the forty that half of them have wrong.
  assert {*shown(page)} <= {*range(100, 140)}
  first = page.locator(".explore .card").first.inner_text().replace("\u00a0", " ")
  inside, outside = (
    100 * errors[of, shown(page)[0]].mean() for of in (chosen, ~chosen)
  )
  assert f"wrong in {inside:.1f} % of the chosen runs, {outside:.1f} %" in first
  apart = int(re.search(r"on (\d+) the chosen", status(page))[1])
  assert apart >= 40


def test_the_pointer_names_a_run_and_a_click_lists_a_bar(opened, reported):
  predictions, labels, folder = reported
  accuracy = (predictions == labels).mean(1)
  page = opened()
  svg = page.locator(".histogram")
  svg.scroll_into_view_if_needed()
  box = svg.bounding_box()
  data = json.loads(page.locator(".explore [data-part=data]").text_content())
  counts = data["bins"]["runs"]
  tallest = int(np.argmax(counts))
  x = box["x"] + box["width"] * (tallest + 0.5) / len(counts)

  # The lowest of the bar is the first of its runs in ascending order.
  page.mouse.move(x, box["y"] + box["height"] - 1)
  first = sum(counts[:tallest])
  run = int(np.argsort(accuracy, kind="stable")[first])
  hovered = page.locator("[data-part=hovered]")
  text = hovered.inner_text().replace("\u00a0", " ")
  assert text == f"run {run}: {100 * accuracy[run]:.2f} %"
  # Above a lower bar there is no run.
  lowest = int(np.argmin(counts))
  place = box["x"] + box["width"] * (lowest + 0.5) / len(counts)
  page.mouse.move(place, box["y"] + 1)
  assert re.match(f"{counts[lowest]} runs?, accuracy ", hovered.inner_text())

  members = page.locator("[data-part=members] li")
  assert members.count() == 0
  page.mouse.click(x, box["y"] + 1)
  texts = [text.replace("\u00a0", " ") for text in members.all_inner_texts()]
  runs = np.argsort(accuracy, kind="stable")[first : first + counts[tallest]]
  assert texts == [f"run {r}: {100 * accuracy[r]:.2f} %" for r in runs]


def test_the_keyboard_is_enough(opened, reported):
  predictions, labels, _ = reported
  page = opened()
  low = page.get_by_role("slider", name="from")
  low.focus()
  before = page.locator("output").inner_text()
  page.keyboard.press("ArrowRight")
  assert page.locator("output").inner_text() != before
  assert re.fullmatch(r"[\d.]+\u00a0%", low.get_attribute("aria-valuetext"))
  assert page.get_by_label("order").input_value() == "apart"
  page.keyboard.press("Home")
  assert page.locator("output").inner_text() == before
  for name in ("to", "label", "wrongly taken for", "wrong at least %"):
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.parentElement.firstChild.data")
    assert focused.replace("\u00a0", " ").strip() == name
  page.keyboard.type("50")
  expected = ((predictions != labels).mean(0) >= 0.5).sum()
  assert status(page).startswith(f"{expected} of ")
  page.get_by_role("button", name="Show more").focus()
  page.keyboard.press("Enter")
  assert len(shown(page)) == min(48, expected)
  assert page.evaluate("document.activeElement.className") == "card"


def test_pictures_are_of_their_examples(opened, reported, tmp_path):
  page = opened()
  expected = np.random.default_rng(0).random((EXAMPLES, 8, 8))
  picture = page.locator(".explore .picture").nth(7)
  picture.scroll_into_view_if_needed()
  picture.screenshot(path=tmp_path / "p.png")
  drawn = (
    Image.open(tmp_path / "p.png").convert("L").resize((8, 8), Image.Resampling.BOX)
  )
  of = expected[shown(page)[7]]
  correlation = np.corrcoef(np.asarray(drawn).ravel(), of.ravel())[0, 1]
  assert correlation > 0.95
  assert picture.get_attribute("aria-label") == f"example {shown(page)[7]}"


def test_without_a_script(opened):
  page = opened(java_script_enabled=False)
  assert not page.locator(".explore").is_visible()
  assert page.locator("section > details > .cards .card").count() > 20
  assert page.locator("h3", has_text="go wrong together").is_visible()


LUMINANCE = """([selector, background]) => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const seen = (color, below) => {
    canvas.globalAlpha = 1;
    canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => rgb.map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  return [...document.querySelectorAll(selector)].map((element) => {
    const style = getComputedStyle(element);
    const own = style.backgroundColor;
    const [a, b] = [light(seen(style.color, background)), light(seen(own, background))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_names(opened, scheme):
  page = opened(color_scheme=scheme)
  background = {"light": "#ffffff", "dark": "#121212"}[scheme]
  page.locator(".confusions button").first.click()
  texts = ".explore button, .explore label, .explore .card, .explore [role=status]"
  contrasts = page.evaluate(LUMINANCE, [texts, background])
  assert len(contrasts) > 20
  assert min(contrasts) > 4.5
  unnamed = page.evaluate(
    "[...document.querySelectorAll('img, svg, [role=img]')]"
    ".filter((e) => !e.getAttribute('alt') && !e.getAttribute('aria-label')).length"
  )
  assert unnamed == 0
  controls = "[...document.querySelectorAll('input, select')]"
  assert page.evaluate(f"{controls}.every((e) => e.labels.length === 1)")


def test_nothing_is_cut_on_a_phone(opened):
  page = opened(viewport={"width": 400, "height": 800})
  assert page.evaluate("document.documentElement.scrollWidth") == 400
  cards = page.locator(".explore .cards").bounding_box()
  assert cards["x"] >= 0
  assert cards["x"] + cards["width"] <= 400
  # Figures keep the size of their letters, and scroll.
  for figure in page.locator("figure img").all():
    assert figure.bounding_box()["width"] > 500
  # Rows of few numbers are blocks, which need no scrolling.
  wide = "[...document.querySelectorAll('.blocks')].filter((e) => e.parentElement.scrollWidth > e.parentElement.clientWidth).length"
  assert page.locator(".blocks").count() > 3
  assert page.evaluate(wide) == 0
  assert page.locator(".blocks thead").first.is_hidden()


@needs_axe
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened, width, scheme):
  page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
  assert findings(page) == []
