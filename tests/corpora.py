"""Small generated translation corpora in the formats of the real ones."""

import gzip
import io
import random
import tarfile

GERMAN = ["ein", "zwei", "drei", "hund", "katze", "haus", "baum", "sieht", "schön", "und"]
ENGLISH = ["a", "two", "three", "dog", "cat", "house", "tree", "sees", "nice", "and"]
CHINESE = "一二三狗猫家树看好和"


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return distinct German-English sentence pairs, translated word for word."""
    rng = random.Random(seed)
    found = {}
    while len(found) < count:
        words = [rng.randrange(len(GERMAN)) for _ in range(rng.randint(3, 8))]
        german = " ".join(GERMAN[w] for w in words).capitalize() + "."
        found[german] = " ".join(ENGLISH[w] for w in words).capitalize() + "."
    return list(found.items())


def write_multi30k(folder, train=120, valid=16, test=13):
    """Write raw files as in multi30k/dataset: train and val are gzipped, the test set is plain."""
    folder.mkdir(parents=True)
    data = pairs(train + valid + test)
    cuts = {"train": data[:train], "val": data[train:-test], "test_2016_flickr": data[-test:]}
    for name, part in cuts.items():
        for side, lang in enumerate(("de", "en")):
            text = "".join(pair[side] + "\n" for pair in part).encode()
            if name == "test_2016_flickr":
                (folder / f"{name}.{lang}").write_bytes(text)
            else:
                (folder / f"{name}.raw.{lang}.gz").write_bytes(gzip.compress(text))
    return folder


def iwslt_files(train, tests):
    """Contents of the IWSLT14 archive by file name.

    Args:
        train: (German, English) transcript lines.
        tests: for each stem such as IWSLT14.TED.dev2010 its (German, English) segments.
    """
    files = {}
    for side, lang in enumerate(("de", "en")):
        head = (
            f"<url>http://www.ted.com/talks/lang/{lang}/a_talk.html</url>\n"
            "<keywords>talks, science</keywords>\n"
            "<talkid>1</talkid>\n"
            f"<title>A talk, side {side}</title>\n"
            f"<description>What it is about, side {side}.</description>\n"
        )
        files[f"train.tags.de-en.{lang}"] = head + "".join(f" {p[side]} \n" for p in train)
        for stem, segments in tests.items():
            files[f"{stem}.de-en.{lang}.xml"] = (
                '<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n'
                f'<refset setid="iwslt2014" srclang="german" trglang="{lang}">\n'
                '<doc docid="1" genre="lectures">\n<title>Not a segment</title>\n'
                + "".join(
                    f'<seg id="{n}"> {segment[side]} </seg>\n'
                    for n, segment in enumerate(segments, start=1)
                )
                + "</doc>\n</refset>\n</mteval>\n"
            )
    return files


def write_archive(path, files):
    """Write the files into a folder de-en of a .tgz, as in the official archive."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            data = text if isinstance(text, bytes) else text.encode()
            info = tarfile.TarInfo(f"de-en/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


IWSLT_TESTS = (
    "IWSLT14.TED.dev2010",
    "IWSLT14.TEDX.dev2012",
    "IWSLT14.TED.tst2010",
    "IWSLT14.TED.tst2011",
    "IWSLT14.TED.tst2012",
)


def write_iwslt(path, train=230, each_test=3):
    """Write a whole generated archive."""
    data = pairs(train + each_test * len(IWSLT_TESTS))
    tests = {stem: data[train + i * each_test :][:each_test] for i, stem in enumerate(IWSLT_TESTS)}
    return write_archive(path, iwslt_files(data[:train], tests))


def write_tatoeba(path, count=150):
    """Write lines English<TAB>Chinese<TAB>credit, some with the same source."""
    rng = random.Random(0)
    lines = []
    for number in range(count):
        words = [rng.randrange(len(ENGLISH)) for _ in range(rng.randint(2, 6))]
        english = " ".join(ENGLISH[w] for w in words).capitalize() + "."
        chinese = "".join(CHINESE[w] for w in words) + "。"
        lines.append(f"{english}\t{chinese}\tCC-BY 2.0 #{number}")
        if number % 10 == 0:
            lines.append(f"Or: {english}\t{chinese}\tCC-BY 2.0 #{number}b")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
