#!/usr/bin/env python3
"""`dpbench report --html`: the numbers of its page, as a browser shows it, recomputed from the runs' raw documents by a
program of its own; text that is made to be markup; numbers that are none; two million steps; the page on a phone, in the
dark, printed, and without scripts. Run from the top of the tree; ends on `N passed, N failed, N skipped`."""

import base64
import functools
import hashlib
import html.parser
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/lib")

import browser  # noqa: E402
import command  # noqa: E402
import counted  # noqa: E402
from command import load, own_directory, read, save, write  # noqa: E402

VOID = {"meta"}  # without an end tag
HOSTILE = ("<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;</pre></noscript><!--<script>@REPORT@-->"
           "</script></title></style>${alert(3)}\u2028\x1b[31m")
# The page as the script has made it, without what does not show.
SHOWN = """(() => {
    const page = document.documentElement.cloneNode(true);
    page.querySelectorAll("script, noscript, style").forEach((element) => element.remove());
    return page.outerHTML;
})()"""
# Relative luminance (WCAG 2) of the colors of the page and of a computed style.
CONTRASTS = """(() => {
    const light = (color) => color.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    const back = light(getComputedStyle(document.body).backgroundColor);
    const ratio = (color) => { const at = [light(color), back].sort((a, b) => b - a); return (at[0] + 0.05) / (at[1] + 0.05); };
    const least = (name, key) => Math.min(...[...document.querySelectorAll(name)].map((one) => ratio(getComputedStyle(one)[key])));
    return {back, texts: least("p, li, th, td, figcaption, h2, h3", "color"), signs: least("svg text", "fill"),
            lines: least("path.line", "stroke"), dots: least("circle.dot", "fill")};
})()"""
# What a click saves: its name, and the file as a URL; the width of the SVG file.
SAVED = """new Promise((done) => {
    const reader = new FileReader();
    URL.createObjectURL = (blob) => { reader.readAsDataURL(blob); return ""; };
    HTMLAnchorElement.prototype.click = function() {
        const width = Number(files.get("time-of-each-step")().getAttribute("width"));
        reader.onload = () => done([this.download, reader.result, width]);
    };
    document.querySelector("[aria-label='save time-of-each-step.png']").click();
    setTimeout(done, 10000, ["nothing", ",", 0]);
})"""
dpbench = functools.partial(command.dpbench, timeout=300)
BASE = command.tiny(12, 3)


class Page(html.parser.HTMLParser):
    """Tags that nest, rows of the tables, texts and figures."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tick, self.open, self.rows, self.figures, self.dots, self.ticks, self.text = None, [], [], [], [], [], ""
        self.tags, self.attributes, self.lines, self.places = set(), set(), {}, []
        self.below, self.is_below, self.axes, self.classes = {}, False, {}, []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        values = dict(attrs)
        self.classes = [*self.classes[:len(self.open)], values.get("class")]
        self.places += [value for name, value in attrs if name in ("d", "x", "y", "cx", "cy", "width", "height")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "figure":
            self.figures.append("")
        if tag == "circle" and self.figures[-1] == "Rates":
            self.dots.append(float(values["cx"]))
        self.is_below = values.get("class") == "middle"
        self.tick = float(values["x"]) if self.is_below and self.figures[-1] == "Rates" else None
        if tag == "svg" and "role" in values:
            assert values["role"] == "img" and values["aria-label"].startswith(self.figures[-1] + ": "), values
        if tag == "path" and "line" in values.get("class", "").split() and "key" not in self.classes:
            self.lines.setdefault(self.figures[-1], []).append(values["d"])
        if tag == "path" and values.get("class") == "axis":
            self.axes[self.figures[-1]] = self.axes.get(self.figures[-1], 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data + " "
        if self.is_below and data[0].isdigit():
            self.below.setdefault(self.figures[-1], []).append(data)
        if self.tick is not None and data[0].isdigit():
            self.ticks.append((float(data.replace("k", "e3").replace("M", "e6")), self.tick))
        if "b" in self.open and "figcaption" in self.open:
            self.figures[-1] += data
        elif "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def made(*paths):
    """The text of the page."""
    ended = dpbench("report", *paths, "--html", "page.html")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "", ended.stdout
    return read("page.html")


def rate_text(rate):
    return f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


class OfRealResults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        own_directory(cls)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)
        write("base.ini", BASE)
        # Two workers that do not wait for each other may have no step in common on a busy machine.
        ended = dpbench("-c", "base.ini", "sweep.comm.name=independent,shm", "sweep.run.workers=1,2", "sweep.repeats=2",
                        "sweep.when=comm.name = shm or run.workers = 1", "sweep.retry_disturbed=0",
                        "--output", "sweep.json")
        assert ended.returncode == 0, ended.stderr
        cls.runs = [load(f"sweep.json.runs/{i:06}.json") for i in range(1, 7)]

    def page_of(self, *paths):
        """As the browser shows it."""
        made(*paths)
        self.browser.load("page.html")
        return Page(self.browser.run(SHOWN))

    def recomputed(self):
        """By cell: the numbers of the table, from step times and records alone."""
        cells = {}
        for run in self.runs:
            cells.setdefault((run["cell"]["comm.name"], int(run["cell"]["run.workers"])), []).append(run)
        rates, rows = {}, {}
        for cell, runs in cells.items():
            clean = [run for run in runs if not run["load"]["disturbed"]] or runs
            of_runs, exposed = [], []
            for run in clean:
                steps = run["timing"]["step_ns"]
                of_runs.append(run["batch"]["global"] * len(steps) / sum(steps) * 1e9)
                exposed.append(run["timing"]["breakdown_ns"]["comm_exposed"] / (sum(steps) / len(steps)))
            rates[cell] = statistics.median(of_runs)
            rows[cell] = statistics.median(exposed)
        baseline = rates["independent", 1]
        return {cell: (rate_text(rates[cell]), f"{rates[cell] / baseline:.2f}",
                       f"{100 * rates[cell] / baseline / cell[1]:.0f} %", f"{100 * rows[cell]:.1f} %") for cell in rates}

    def test_table_and_dots(self):
        page = self.page_of("sweep.json.runs")
        head = next(row for row in page.rows if "samples/s" in row)
        seen = {}
        for row in page.rows:
            if len(row) == len(head) and row is not head:
                cell = dict(zip(head, row))
                seen[cell["strategy"], int(cell["workers"].rstrip("!"))] = (
                    cell["samples/s"], cell["speedup"].rstrip("*"), cell["effic."], cell["exposed"])
        self.assertEqual(seen, self.recomputed())
        # The ticks tell where a rate is.
        (low, from_px), *_, (high, to_px) = page.ticks
        for (rate, *_), place in zip(seen.values(), page.dots):
            self.assertAlmostEqual(place, from_px + (float(rate) - low) / (high - low) * (to_px - from_px), delta=0.2)
        for figure in ("Rates", "Parts of the step", "Speedup", "Efficiency", "Loss by samples", "Loss by seconds"):
            self.assertIn(figure, page.figures)
        self.assertNotIn("Accuracy by samples", page.figures)  # none was asked for
        self.assertIn("no conclusion", page.text)
        for run in self.runs:
            for warning in run["warnings"]:
                self.assertIn(warning["code"], page.text)

    def test_run_is_the_text(self):
        """Each word of the text report stands on the page."""
        save(self.runs[0], "run.json")
        page = self.page_of("run.json")
        words = set(page.text.split())
        for word in dpbench("report", "run.json").stdout.replace("run.json\n", "", 1).split("\n", 1)[1].split():
            self.assertTrue(word in words or word == "warning", word)
        timing = self.runs[0]["timing"]
        self.assertEqual(len(timing["warmup_step_ns"]), 3)
        steps = page.lines["Time of each step"]
        self.assertEqual(sum(line.count("L") for line in steps), 3 + 12 - 1)
        for part in ("Settings", "Machine", "Versions", self.runs[0]["machine"]["processor"]):
            self.assertIn(part, page.text)

    def test_plugins_of_all_runs(self):
        """Each with its version, once; a run beside the sweep has no others."""
        save(self.runs[0], "run.json")
        page = self.page_of("sweep.json", "run.json", "--each")
        plugins = {row[0]: row[1] for row in page.rows if row and row[0].startswith("plugins.comm ")}
        self.assertEqual(len(plugins), sum(row[:1] == [name] for name in plugins for row in page.rows))
        for name in ("independent", "shm"):
            self.assertEqual(plugins[f"plugins.comm '{name}'.name"], name)
            self.assertIn(f"plugins.comm '{name}'.version", plugins)
        self.assertEqual(page.text.count("as of the first result"), 2)  # machine, versions
        sweep = load("sweep.json")  # resumed by another build
        run = next(run for run in sweep["runs"] if run["strategy"]["name"] == "shm")
        run["versions"]["plugins"]["comm"]["version"] = "0"
        save(sweep, "made.json")
        rows = dict(row for row in self.page_of("made.json").rows if len(row) == 2)
        versions = {rows["plugins.comm 'shm'.version"], rows["plugins.comm 'shm' 2.version"]}
        self.assertEqual(versions, {plugins["plugins.comm 'shm'.version"], "0"})

    def test_monitor(self):
        """Lines of what run.monitor saw; a number that is not told breaks one."""
        machine = {"host": "a<b", "seconds": [1, 2, 3, 4], "own_cpus": [1, 2, 1, 1], "others_cpus": [0, None, 0, 1]}
        gpus = [{"rank": 0, "seconds": [1, 2], "power_w": [300, 310]}, {"rank": 1, "seconds": [1], "power_w": []}]
        save(dict(self.runs[0], monitor={"machines": [machine], "gpus": gpus}), "run.json")
        page = self.page_of("run.json")
        drawn = [line.count("L") for line in page.lines["CPUs of a<b"]]
        self.assertEqual([n for n in drawn if n > 0], [3, 1])
        self.assertIn("Power of the GPUs", page.figures)
        self.assertNotIn("have no figure", page.text)
        save(dict(self.runs[0], monitor={"machines": 10 * [machine], "gpus": []}), "run.json")
        self.assertIn("the first 8 machines; 2 more have no figure", self.page_of("run.json").text)
        save(dict(self.runs[0], monitor=None), "run.json")
        self.assertNotIn("Power of the GPUs", self.page_of("run.json").figures)

    def test_png(self):
        """Of a dark page, too, it is the picture of the SVG file, twice as large."""
        save(self.runs[0], "run.json")
        made("run.json")
        self.browser.load("page.html", scheme="dark")
        name, url, width = self.browser.run(SAVED)
        kind, text = url.split(",")
        png = base64.b64decode(text)
        self.assertEqual((name, kind), ("time-of-each-step.png", "data:image/png;base64"))
        self.assertEqual(int.from_bytes(png[16:20], "big"), 2 * width)
        chunks, at = b"", 8
        while at < len(png):
            size = int.from_bytes(png[at:at + 4], "big")
            chunks += png[at + 8:at + 8 + size] if png[at + 4:at + 8] == b"IDAT" else b""
            at += size + 12
        pixels = zlib.decompress(chunks)
        self.assertEqual(pixels[1:4], b"\xff\xff\xff")  # the first one
        self.assertGreater(len(set(pixels)), 100)  # it is not white alone

    def test_workers(self):
        """A row each, and shades for parts that differ from the median by 1, 5 and 20 % of the step; nothing twice."""
        run = self.runs[0]
        zero = dict.fromkeys(run["ranks"][0]["breakdown_ns"], 0)
        parts = zero | {"forward": 2e6, "backward": 1e6, "comm_exposed": 5e6}
        slow = parts | {"forward": 2.21e6, "backward": 2.1e6, "comm_exposed": 12e6}
        for n, usual in ((2, ["s1 c0", "s2 c0", "s3 c0"]), (64, ["", "", ""])):
            ranks = [dict(run["ranks"][0], rank=i, step_ns={"mean": 1e7}, breakdown_ns=slow if i == 1 else parts)
                     for i in range(n)] + [dict(run["ranks"][0], rank=n, role="server")]
            last = {"rank": 1, "part": "backward", "decided": True, "shares": [0.25, 0.75, *[0] * (n - 2)]}
            save(dict(run, ranks=ranks, why={"last": last}), "run.json")
            self.assertIn("each worker's own step", dpbench("report", "run.json").stdout)
            self.assertNotIn("each worker's own step", self.page_of("run.json").text)
            head, *rows = self.browser.run("""[...document.querySelectorAll(".heat tr")].map((row) => [...row.cells]
                .map((cell) => cell.textContent + "|" + cell.className))""")
            self.assertEqual(head, ["rank|left", "last|", "forward|", "backward|", "exposed|"])
            looks = ["s1 c1", "s2 c1", "s3 c1"]
            self.assertEqual(rows[0], ["0|left", "25.0 %|", *map("|".join, zip(["2.000", "1.000", "5.000"], usual))])
            self.assertEqual(rows[1], ["1|left", "75.0 %|", *map("|".join, zip(["2.210", "2.100", "12.000"], looks))])
            self.assertEqual(len(rows), n)

    def test_several(self):
        for i in range(2):
            save(self.runs[i], f"{i}.json")
        page = self.page_of("0.json", "1.json", "sweep.json")
        self.assertEqual(page.figures.count("Rates"), 3)  # of the two runs, of the sweep, of all
        self.assertIn("these results ran at different times", page.text)
        page = self.page_of("0.json", "1.json", "sweep.json", "--each")
        self.assertEqual(page.figures.count("Rates"), 2)

    def sweep_of(self, strategies, workers, warnings):
        """A sweep of all these, with one run each, that has as many warnings."""
        sweep = load("sweep.json")
        row, run = next(row for row in sweep["rows"] if row["speedup"]), sweep["runs"][0]
        sweep["rows"], sweep["runs"] = [], []
        for i in range(strategies):
            for w in range(1, workers + 1):
                cell = {"comm.name": f"strategy{i}", "run.workers": str(w)}
                sweep["rows"].append(dict(row, cell=cell, strategy=f"strategy{i}", workers=w, speedup=w))
                sweep["runs"].append(dict(run, cell=cell, warnings=[
                    {"code": f"code{k}", "text": "text", "count": 1} for k in range(warnings)]))
        save(sweep, "made.json")
        return self.page_of("made.json")

    def test_every_number_of_workers_has_a_tick(self):
        for most in (15, 16):  # from 16 on the axis is logarithmic, and some have no room for a number
            page = self.sweep_of(2, most, 0)
            for figure in ("Speedup", "Efficiency"):
                numbers = [int(text) for text in page.below[figure]]
                self.assertEqual(page.axes[figure], most + 1)
                self.assertEqual((numbers[0], numbers[-1]), (1, most))
                self.assertTrue(most > 15 or numbers == list(range(1, 16)), numbers)
        wide = self.sweep_of(1, 40, 0)  # the ideal goes on to the last
        ideal = wide.lines["Speedup"]
        self.assertEqual(max(line.count("L") for line in ideal), 40 - 1)
        self.assertEqual([line.count("L") for line in ideal if line.count("L") > 1], [39, 39])

    def test_a_run_counts_once_for_a_warning(self):
        sweep = load("sweep.json")
        for run in sweep["runs"]:
            run["warnings"] = [{"code": "twice", "text": text, "count": 1} for text in "ab"]
        save(sweep, "made.json")
        cells = [json.dumps(run["cell"]) for run in sweep["runs"]]
        found = re.findall(r"twice: a *(?:\(the first of +(\d+) +runs\))?", self.page_of("made.json").text)
        self.assertEqual(sorted(int(n or 1) for n in found), sorted(cells.count(cell) for cell in set(cells)))

    def test_what_is_left_out_is_said(self):
        page = self.sweep_of(26, 2, 5)
        self.assertIn("Curves are those of the first 24 strategies; 2 more have none.", page.text)
        self.assertIn("60 more warnings stand in the file alone", page.text)  # of 26 * 2 * 5
        page = self.sweep_of(20, 2, 5)
        self.assertNotIn("more", " ".join(page.text.split("Settings")[0].split()).replace("more processes", ""))
        save(dict(self.runs[0], loss=[], ranks=[], machine={}, versions={}, monitor=None), "one.json")
        links = [f"{i}.link.json" for i in range(66)]
        for name in links:
            os.symlink("one.json", name)
        page = self.page_of(*links)
        self.assertIn("2 more results have a section below", page.text)
        self.assertNotIn("more results", self.page_of(*links[:64]).text)

    def test_refused_run_has_its_name(self):
        ended = dpbench("-c", "base.ini", "run.name=odd", "sweep.run.precision=fp32,bf16", "sweep.repeats=1",
                        "sweep.skip_refused=yes", "--output", "refused.json")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.page_of("refused.json.runs/000002.json")
        self.assertEqual(self.browser.run("document.querySelector('h2').textContent"), "odd")
        self.assertIn("odd", self.browser.run("document.title"))

    def test_hostile(self):
        run = load("sweep.json")["runs"][0]
        run["name"] = run["strategy"]["name"] = run["model"]["name"] = HOSTILE
        run["machine"] = {HOSTILE: HOSTILE}
        run["warnings"] = [{"code": HOSTILE, "text": HOSTILE, "count": 1}]
        sweep = load("sweep.json")
        for row in sweep["rows"]:
            row["strategy"] = row["consistency"] = HOSTILE
            row["cell"]["run.seed"] = HOSTILE
        sweep["error"], sweep["status"] = HOSTILE, "failed"
        sweep["rows"][1]["samples_per_s"] = {}
        sweep["rows"][1]["error"] = HOSTILE
        name = HOSTILE.replace("/", "_") + ".json"
        save(run, name)
        save(sweep, "hostile.json")
        for ended in (dpbench("report", name), dpbench("report", name, name)):
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertNotIn("\x1b", ended.stdout)
            self.assertIn("\\x1b[31m.json", "".join(ended.stdout.split("\n")))
        page = self.page_of(name, "hostile.json", "--each")
        self.assertEqual(page.tags & {"script", "img", "link", "a", "iframe", "style"}, set())
        self.assertEqual({a for a in page.attributes if a.startswith("on") or a in ("src", "href", "style")}, set())
        self.assertEqual(self.browser.run("[document.scripts.length, document.querySelectorAll('noscript, style').length]"), [2, 2])
        self.assertIn("<script>alert(1)</script>", page.text)
        self.assertIn("</noscript><!--<script>@REPORT@", page.text)
        text = read("page.html")
        self.assertNotIn("\x1b", text)
        self.assertNotIn("url(", text)
        self.browser.load("page.html", scripts=False)
        self.assertEqual(self.browser.run("[document.scripts.length, document.images.length]"), [2, 0])
        self.assertIn("</noscript><!--<script>@REPORT@", self.browser.run("document.querySelector('pre').textContent"))

    def test_no_script_but_the_page_s(self):
        """The policy names it by its hash: another would not run, wherever it came from."""
        save(self.runs[0], "run.json")
        text = made("run.json")
        script = text.split("<script>")[1].split("</script>")[0]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = re.search(r"content=\"(default-src [^\"]*)\"", text)[1]
        self.assertEqual(policy, f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'")
        write("page.html", text.replace("<h1>", "<script>document.title = 'taken'</script><h1>"))
        with self.assertRaisesRegex(AssertionError, "violates the following Content Security Policy"):
            self.browser.load("page.html")
        self.assertNotEqual(self.browser.run("document.title"), "taken")

    def test_every_reader(self):
        """Phone and wide screen, light and dark, on paper: all is in sight and has contrast."""
        for i in range(2):
            save(self.runs[i], f"{i}.json")
        self.page_of("0.json", "1.json", "sweep.json")
        self.assertEqual(self.browser.run("document.documentElement.lang"), "en")
        self.assertRegex(self.browser.run("document.title"), "^dpbench report: ")
        backs = []
        for scheme in ("light", "dark"):
            for width in (360, 1400):
                self.browser.show(width, scheme)
                self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
            found = self.browser.run(CONTRASTS)
            backs.append(found.pop("back"))
            for what, least in found.items():
                self.assertGreaterEqual(least, 4.5 if what in ("texts", "signs") else 3, what)
        self.assertGreater(backs[0], 0.9)
        self.assertLess(backs[1], 0.05)
        self.browser.show(718, "dark", "print")  # A4 within its margins
        self.assertEqual(self.browser.run(CONTRASTS)["back"], 1)
        wide = "Math.max(...[...document.querySelectorAll('table, figure, pre')].map((one) => one.getBoundingClientRect().right))"
        self.assertLessEqual(self.browser.run(wide), 718)
        self.assertIn("samples/s", self.browser.run("document.querySelector('.rows').innerText"))
        paper = self.browser.pdf()
        self.assertTrue(paper.startswith(b"%PDF-"))
        self.assertGreater(len(re.findall(rb"/Type\s*/Page\b", paper)), 1)

    def test_without_scripts(self):
        """The page says what it would show, and shows the tables as `report` prints them."""
        save(self.runs[0], "run.json")
        shown = "document.querySelector('noscript').innerText"
        for names, printed in ((("sweep.json", "run.json", "--each"),) * 2, (("sweep.json", "run.json"),) * 2):
            made(*names)
            self.browser.load("page.html", scripts=False)
            for width in (360, 1400):
                self.browser.show(width)
                self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
            text = self.browser.run(shown)
            for words in ("Scripts are off", "speedup and efficiency over the workers", "loss and accuracy"):
                self.assertIn(words, " ".join(text.split()))
            self.assertIn(dpbench("report", *printed).stdout.strip(), text)
            self.assertEqual(self.browser.run("document.querySelectorAll('section').length"), 0)
        self.browser.load("page.html")
        self.assertEqual(self.browser.run("document.querySelector('noscript').getClientRects().length"), 0)

    def test_template(self):
        """A template without a mark is refused, and leaves no page."""
        with tempfile.TemporaryDirectory() as place:
            os.makedirs(f"{place}/bin")
            os.makedirs(f"{place}/templates")
            for program in ("dpbench", "dpbench-report"):
                shutil.copy(os.path.join(os.path.dirname(command.DPBENCH), program), f"{place}/bin")
            write(f"{place}/templates/report.html", "@TEXT@ @REPORT@")
            for words in ("lacks @SCRIPT@, @TEXT@ or @REPORT@", "templates/report.html: No such file"):
                ended = subprocess.run([f"{place}/bin/dpbench", "report", "sweep.json", "--html", "none.html"],
                                       capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.assertIn(words, ended.stderr)
                self.assertFalse(os.path.exists("none.html"))
                if os.path.exists(f"{place}/templates/report.html"):
                    os.unlink(f"{place}/templates/report.html")

    def test_no_numbers(self):
        """No figure is drawn of nothing."""
        run = load("sweep.json")["runs"][0]
        run["loss"] = [None] * 9
        run["eval"] = [{"accuracy": None}] * 3
        run["timing"] = {"step_ns": [], "breakdown_ns": {"forward": None}, "samples_per_s": {"mean": 1e308}}
        run["ranks"] = []
        save(run, "empty.json")
        self.assertEqual(self.page_of("empty.json").figures, [])
        run["loss"] = [1e308, -1e308, 5, 5]
        run["timing"]["step_ns"] = [0, 0, 0]
        save(run, "odd.json")
        page = self.page_of("odd.json")
        self.assertEqual(page.figures, ["Time of each step"])
        self.assertEqual([at for at in page.places if "nan" in at.lower() or "inf" in at.lower()], [])
        odd = {"toString": 1, "valueOf": 2}  # an object that a script cannot make a text of
        row = {"speedup": 2, "efficiency": odd, "workers": 2, "strategy": odd, "speedup_over": odd, "breakdown_ns": odd,
               "samples_per_s": {"median": 5, "low": odd}}
        save({"schema": "dpbench.sweep/1", "rows": [{}, 3, None, {"cell": [1]}, row], "runs": [7, {}], "warnings": 3}, "odd.json")
        self.page_of("odd.json")
        save({"schema": "dpbench.result/1", "name": odd, "warnings": [{"code": odd}, 3], "machine": odd, "ranks": [odd],
              "monitor": {"machines": [odd, {"host": odd, "seconds": [1], "own_cpus": [odd]}], "gpus": [{"rank": odd}]}}, "odd.json")
        self.assertIn("?: ?", self.page_of("odd.json").text)

    def test_two_million_steps(self):
        run, n = load("sweep.json")["runs"][0], 2000000
        run["timing"]["step_ns"] = run["loss"] = "@"
        before, after = json.dumps(run).split('"@"', 1)
        between, after = after.split('"@"', 1)
        with open("long.json", "w", encoding="ascii") as file:
            file.write(before + "[" + "2.5,0.5,null,7.25," * (n // 4) + "1]" + between)
            file.write("[" + "1000000,1200345,1400222,900001," * (n // 4) + "1]" + after)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = made("long.json")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 5)
        if "ASAN_OPTIONS" not in os.environ:  # a sanitizer takes memory of its own
            self.assertLess(now.ru_maxrss, 300 * 1024)  # of any child so far
        self.assertLess(len(text), 200000)
        self.browser.load("page.html")
        page = Page(self.browser.run(SHOWN))
        self.assertIn("Loss by samples", page.figures)
        self.assertLessEqual(max(line.count("L") for lines in page.lines.values() for line in lines), 720)
        os.unlink("long.json")

    def test_more_than_a_thousand_runs(self):
        sweep = load("sweep.json")
        runs = [json.dumps(dict(run, loss=["@"] * 40)) for run in sweep["runs"]]
        head, tail = json.dumps(dict(sweep, runs=["@"])).split('"@"')
        write("many.json", head + ", ".join(runs[i % 6].replace('"@"', str(1 + 1 / (i + 1))) for i in range(1001)) + tail)
        limit = "" if "ASAN_OPTIONS" in os.environ else "ulimit -d 32768;"  # the runs as they are take 200 MiB
        ended = subprocess.run(["sh", "-c", limit + 'exec "$@"', "sh", command.DPBENCH, "report", "many.json", "--html", "page.html"],
                               capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        shown = command.page("page.html")
        self.assertIn("1001 runs, more than 1000", json.dumps(shown))
        self.assertEqual([line["row"]["runs"] for line in shown[0]["rows"]["lines"] if "training" not in line],
                         [row["runs"] for row in sweep["rows"]])
        os.unlink("many.json")

    def test_where_it_may_write(self):
        os.symlink("/dev/full", "device.html")
        os.mkdir("directory.html")
        for name, words in (("device.html", "no regular file"), ("directory.html", "is a directory"),
                            ("sweep.json", "ends on .html"), ("none/x.html", "none/x.html")):
            ended = dpbench("report", "sweep.json", "--html", name)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn(words, ended.stderr)
        self.assertTrue(os.path.islink("device.html"))
        self.assertEqual([name for name in os.listdir() if ".tmp-" in name], [])
        self.assertEqual(dpbench("report", "sweep.json", "--html").returncode, 2)


if __name__ == "__main__":
    counted.main()
