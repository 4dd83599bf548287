"""Write folders of runs, and parse pages."""

import json
from html.parser import HTMLParser

from fairseq_casrnn import cli

STAMP = "2026-01-02 03:04:05 | INFO | "
EVIL = "<script>alert('x')</script> & \"more\""


def log(losses, seed=1):
    """fairseq's log of a training with an epoch of 10 updates for each loss."""
    lines = [
        f"fairseq_cli.train | {{'seed': {seed}, 'user_dir': '/u', 'save_dir': 'o/s', 'data': 'd'}}",
        "fairseq_cli.train | num. shared model params: 1,234 (num. trained: 1,234)",
    ]
    for epoch, loss in enumerate(losses, start=1):
        update = 10 * epoch
        lines += [
            f"train_inner | epoch {epoch:03d}:      5 / 10 loss={loss + 1}, wps=900.5, "
            f"num_updates={update - 5}, lr=0.001, gnorm={epoch}",
            f"valid | epoch {epoch:03d} | valid on 'valid' subset | loss {loss} | accuracy "
            f"{50 + epoch} | wps 5000 | num_updates {update}",
            f"train | epoch {epoch:03d} | loss {loss + 2} | wps 800 | num_updates {update} | lr "
            f"0.001 | gnorm {epoch}",
        ]
    lines.append("fairseq_cli.train | done training in 12.3 seconds")
    return "".join(f"{STAMP}{line}\n" for line in lines)


ROWS = [
    ("a", "a", 0.95, "1", "fine"),
    ("a", "b", 0.9, "2", EVIL),
    ("b", "b", 0.55, "3", "=1+1"),
    ("b", "a", 0.99, "4", "surely"),
]


def table(header, rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in [header, *rows])


def write_run(folder, losses=(3.0, 2.0, 1.5), rows=ROWS, options="--arch x --lr 1e-3"):
    folder.mkdir(parents=True)
    (folder / "train.log").write_text(log(losses))
    (folder / "finished").write_text(options + "\n")
    (folder / "test.json").write_text(json.dumps({"accuracy": 50.0, "macro_f1": 45.5}))
    header = ("gold", "predicted", "probability", "line", "text")
    (folder / "test.predictions.tsv").write_text(table(header, rows))
    return folder


class Page(HTMLParser):
    """A parsed page: tags and attributes, tables by caption, texts of <pre>."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.tables, self.pre = [], {}, []
        self.within, self.rows, self.caption = None, [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "table":
            self.rows = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "pre":
            self.pre.append("")
        if tag in ("caption", "td", "th", "pre"):
            self.within = tag

    def handle_endtag(self, tag):
        if tag == "table":
            self.tables[self.caption] = self.rows
        if tag == self.within:
            self.within = None

    def handle_data(self, data):
        if self.within == "caption":
            self.caption = data
        elif self.within == "pre":
            self.pre[-1] += data
        elif self.within:
            self.rows[-1][-1] += data

    @property
    def pictures(self):
        return [a["aria-label"] for tag, a in self.tags if tag == "svg"]


def report(tmp_path, *argv):
    out = tmp_path / "report.html"
    assert cli.main(["report", *map(str, argv), "--output", str(out)]) == 0
    return Page(out.read_text("utf-8"))
