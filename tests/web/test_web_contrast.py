"""Every page in each theme and width: it fits, logs no error, and its texts have the contrast of WCAG AA.

Also the colours that canvases paint.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from serving import in_parts
from test_web_browser import ROWS

from web.pages import HERE

#: WCAG 2.2, 1.4.3: text; large text (24 px, or 18.66 px bold); 1.4.11: what must be visible to use or understand
#: something.
TEXT, LARGE, SHAPE = 4.5, 3.0, 3.0
#: Whether each form of the bar that opens lies in the window, both ends of it.
SHEETS = """[...document.querySelectorAll('.top .drop')].map(drop => {
    drop.open = true;
    const { left, right } = drop.querySelector('.sheet').getBoundingClientRect();
    drop.open = false;
    return left >= 0 && right <= innerWidth;
})"""
#: Headings of panels that something else covers though they are in the middle of the window. The bar's forms are closed
#: first: an open one lies over the page, as it should.
COVERED = """() => {
    for (const form of document.querySelectorAll('.top details')) form.open = false;
    return [...document.querySelectorAll('main section h2')].filter(head => {
        if (!head.checkVisibility()) return false;
        head.scrollIntoView({ block: 'center', behavior: 'instant' });
        const { left, top, width, height } = head.getBoundingClientRect();
        const there = document.elementFromPoint(left + Math.min(width, 20) / 2, top + height / 2);
        return !there || !head.closest('section').contains(there);
    }).map(head => head.textContent);
}"""
#: Widths between a phone and a wide screen.
BETWEEN = (1280, 1024, 768, 720)
PAGES = ("/", "/incidents/I1", "/incidents/I0", "/jobs", "/jobs/15", "/jobs/16", "/nodes", "/nodes/gpu02", "/repairs", "/fleet?incident=I1", "/sources", "/reports",
         "/explore", "/tail", "/dashboards", "/dashboards/cluster-now", "/search?q=script")  # fmt: skip
#: Composites every translucent background between an element and the page; measures each element that has text of its
#: own.
MEASURE = r"""([TEXT, LARGE]) => {
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const lum = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const ground = e => {
    const all = [];
    for (; e; e = e.parentElement) all.push(parse(getComputedStyle(e).backgroundColor));
    return all.reverse().reduce((under, c) => over(c, under), [255, 255, 255, 1]);
  };
  for (const d of document.querySelectorAll('details')) d.open = true;
  const bad = new Map();
  let count = 0;
  const judge = (e, colour, what) => {
    if (parse(colour)[3] === 0) return;  // the editor shows a coloured copy of its text, which is judged
    const s = getComputedStyle(e), size = parseFloat(s.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(s.fontWeight) >= 700);
    const g = ground(e), r = ratio(over(parse(colour), g), g);
    count += 1;
    if (r < (large ? LARGE : TEXT)) bad.set(`${e.tagName}.${e.className} ${what}`.slice(0, 90), Number(r.toFixed(2)));
  };
  for (const e of document.querySelectorAll('body *')) {
    if (!e.checkVisibility() || e.closest('.sr')) continue;
    const own = [...e.childNodes].filter(n => n.nodeType === 3 && n.textContent.trim());
    if (own.length) judge(e, getComputedStyle(e).color, own[0].textContent.trim());
    if (e.matches('input, textarea') && e.placeholder) judge(e, getComputedStyle(e, '::placeholder').color, e.placeholder);
  }
  return { count, bad: [...bad] };
}"""


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width", "part"), in_parts(4))
def test_every_page_fits_is_quiet_and_can_be_read(look: Any, theme: str, width: int, part: slice) -> None:
    eyes = look(width)
    eyes.answer_queries(ROWS)
    zone = "Asia/Kolkata" if theme == "light" else "UTC"  # the zone with the longest name
    for path in PAGES[part]:
        page = eyes.open(f"{path}{'&' if '?' in path else '?'}theme={theme}&zone={zone}")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        assert eyes.faults == [], path
        eyes.shoot(f"{re.sub('[^a-zA-Z0-9]+', '-', path).strip('-') or 'home'}-{width}-{theme}")
        found = page.evaluate(MEASURE, [TEXT, LARGE])
        assert found["count"] > 10 and found["bad"] == [], path
        assert page.evaluate(COVERED) == [], path
        if width > max(BETWEEN):
            for less in BETWEEN:  # half a screen, a tablet, and where the bar is as wide as the window
                page.set_viewport_size({"width": less, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (path, less)
                assert all(page.evaluate(SHEETS)), (path, less)
            page.set_viewport_size({"width": width, "height": 900})


@pytest.mark.browser
def test_what_measures_finds_a_text_that_cannot_be_read(look: Any) -> None:
    page = look().open("/?theme=light")
    page.evaluate("document.querySelector('h1').style.color = '#c8c8c8'")
    found = page.evaluate(MEASURE, [TEXT, LARGE])
    assert len(found["bad"]) == 1 and found["bad"][0][0].startswith("H1")


@pytest.mark.browser
def test_a_long_list_covers_no_other_panel(look: Any, dense_site: str) -> None:
    page = look(at=dense_site).open("/nodes/gpu01")
    assert page.evaluate("document.querySelector('.log').offsetHeight") > 3000
    assert page.evaluate(COVERED) == []


def tokens(theme: str) -> dict[str, str]:
    """The colours of a theme, from the style sheet that canvases read them from."""
    text = (HERE / "static" / "css" / "tokens.css").read_text()
    block = re.search(r":root\[data-theme='light'\] \{(.*?)\}" if theme == "light" else r":root \{(.*?)\}", text, re.S)
    assert block
    return dict(re.findall(r"--([\w-]+): (#\w+);", block[1]))


def channels(colour: str) -> list[float]:
    return [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]


def luminance(rgb: list[float]) -> float:
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ratio(front: str, back: str, *, wash: str | None = None, share: float = 0.0) -> float:
    """Contrast of two colours; ``wash`` covers the background with that share."""
    ground = channels(back)
    if wash is not None:
        ground = [share * w + (1 - share) * g for w, g in zip(channels(wash), ground, strict=True)]
    light, dark = sorted((luminance(channels(front)), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


LAYERS = ("switch", "link", "kernel", "slurmd", "ctld", "gpu", "storage", "job")
#: Texts that static/axis and the chart of Explore paint, with their backgrounds.
PAINTED = [("ink", "panel"), ("ink2", "panel"), ("ink3", "panel"), ("ink2", "raise"), ("ink3", "raise"), ("ink2", "bg"), ("ink3", "bg"),
           ("ink", "bg"), ("panel", "ink"), ("warn", "warn-bg"), ("band-ink", "band"), ("band-ink", "panel"),
           ("band-ink", "jobbar"), ("impact", "jobbar")]  # fmt: skip
SHAPES = [*((layer, "panel") for layer in LAYERS), ("impact", "panel"), ("impact-band", "panel"), ("ok", "jobbar"), ("ok", "panel"),
          ("arrow", "panel"), ("accent", "panel"), ("warn", "warn-bg"), ("hatch", "panel"), ("cursor", "panel"), ("ink2", "jobbar")]  # fmt: skip


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_what_canvases_paint_can_be_seen(theme: str) -> None:
    colours = tokens(theme)
    low = {
        f"{front} on {back}": round(ratio(colours[front], colours[back]), 2)
        for pairs, floor in ((PAINTED, TEXT), (SHAPES, SHAPE))
        for front, back in pairs
        if ratio(colours[front], colours[back]) < floor
    }
    assert low == {}
    assert ratio("#ffffff", colours["impact-band"]) >= TEXT
    for layer in LAYERS:  # a soft band is its layer's colour at 17 % over the panel
        assert ratio(colours["ink"], colours["panel"], wash=colours[layer], share=0.17) >= TEXT


def test_both_light_themes_are_the_same() -> None:
    """The one that the system selects and the one that is pinned."""
    text = (HERE / "static" / "css" / "tokens.css").read_text()
    asked = re.search(r":root:not\(\[data-theme='dark'\]\) \{(.*?)\}", text, re.S)
    assert asked and dict(re.findall(r"--([\w-]+): (#\w+);", asked[1])) == tokens("light")
