"""The pictures in docs/report/: the first screen of the example report, from phone to paper.

`make screenshots` writes them. It needs Debian's Chromium.
"""

import shutil
from pathlib import Path

from PIL import Image
from playwright import sync_api

from tests import debian

DOCS = Path(__file__).parents[2] / "docs"
REPORT = DOCS / "example" / "report.html"
# The width and the height of the page in pixels, and how the browser shows it.
PICTURES = {
    "light": ((1280, 800), {"color_scheme": "light"}),
    "dark": ((1280, 800), {"color_scheme": "dark"}),
    "wide": ((1920, 1080), {"color_scheme": "light"}),
    "phone": ((390, 844), {"color_scheme": "light"}),
    "paper": ((794, 1123), {"media": "print"}),  # A4 at 96 pixels per inch
}


def write_pictures(folder: Path) -> None:
    """Write a PNG file with 128 colours for each of `PICTURES`."""
    if reason := debian.install_missing(["chromium"], ["chromium", "fonts-dejavu-core"]):
        raise SystemExit(reason)
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium", path=debian.PATH), args=["--no-sandbox"]
        )
        for name, ((width, height), media) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.emulate_media(**media)
            page.goto(REPORT.as_uri())
            file = folder / f"{name}.png"
            page.screenshot(path=file)
            with Image.open(file) as picture:
                reduced = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
            reduced.save(file, optimize=True)
        browser.close()


if __name__ == "__main__":
    write_pictures(DOCS / "report")
