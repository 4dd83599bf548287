#!/usr/bin/env python3
"""Write German-English pairs about dates, times, prices, ordinals and quantities, in words.

generate.py OUT writes OUT/{train,valid,test}.{de,en}, one sentence a line, the same for the same
seed. A German phrase always has the same English translation, so that a perfect model is right on
every sentence. No German and no English sentence occurs twice, so train has none of valid or test.
"""

import argparse
import datetime
import os
import random
import string
import sys
from pathlib import Path

import wording

CITIES = [
    ("Berlin", "Berlin"), ("Hamburg", "Hamburg"), ("München", "Munich"), ("Köln", "Cologne"),
    ("Wien", "Vienna"), ("Zürich", "Zurich"), ("Rom", "Rome"), ("Paris", "Paris"),
]  # fmt: skip
EVENTS = [
    ("Das Konzert", "The concert"), ("Die Sitzung", "The meeting"), ("Der Film", "The film"),
    ("Der Unterricht", "The class"), ("Das Fest", "The party"), ("Das Spiel", "The match"),
]  # fmt: skip
# As objects of a sentence; subjects have a capital, and "der" for "den".
GOODS = [
    ("das Buch", "the book"), ("den Stuhl", "the chair"), ("die Lampe", "the lamp"),
    ("das Fahrrad", "the bicycle"), ("die Fahrkarte", "the ticket"), ("den Mantel", "the coat"),
]  # fmt: skip
# German unit, English singular and plural, what is measured in it.
UNITS = [
    ("Gramm", "gram", "grams", [("Mehl", "flour"), ("Zucker", "sugar"), ("Käse", "cheese")]),
    ("Kilo", "kilo", "kilos", [("Äpfel", "apples"), ("Kartoffeln", "potatoes"), ("Reis", "rice")]),
    ("Liter", "litre", "litres", [("Milch", "milk"), ("Wasser", "water"), ("Wein", "wine")]),
]
SPANS = [("Minuten", "minutes"), ("Stunden", "hours"), ("Tagen", "days"), ("Wochen", "weeks")]

# Weight, German, English. The two sides of a random pair fill a slot (see SLOTS).
TEMPLATES = [
    (16, "{date}", "{date}"),
    (12, "{date} um {time}", "{date} at {time}"),
    (3, "um {time}", "at {time}"),
    (8, "für {price}", "for {price}"),
    (6, "{Event} beginnt {when}.", "{Event} begins {when}."),
    (6, "Wir treffen uns {when}.", "We are meeting {when}."),
    (4, "Sie wurde {birthday} geboren.", "She was born {birthday}."),
    (6, "{Goods} kostet {price}.", "{Goods} costs {price}."),
    (6, "Das macht zusammen {price}.", "That makes {price} altogether."),
    (4, "Das ist mein {ordinal_r} Tag in {city}.", "This is my {ordinal_r} day in {city}."),
    (4, "zum {ordinal_n} Mal in {city}", "for the {ordinal_n} time in {city}"),
    (4, "{quantity}", "{quantity}"),
    (4, "Wir brauchen {quantity}.", "We need {quantity}."),
    (4, "Die Stadt hat {count} Einwohner.", "The city has {count} inhabitants."),
    (4, "Die Strecke ist {count} Kilometer lang.", "The route is {count} kilometres long."),
    (2, "Wir sind in {span} zurück.", "We will be back in {span}."),
]


def some_number(rng, largest):
    """A number from 2 to `largest`; each number of digits is equally frequent."""
    digits = rng.randint(1, len(str(largest)))
    return rng.randint(max(2, 10 ** (digits - 1)), min(10**digits - 1, largest))


def some_date(rng, since=1900, until=2050, **options):
    """A day of the years `since` to `until` - 1, with its real weekday."""
    first, end = datetime.date(since, 1, 1), datetime.date(until, 1, 1)
    day = first + datetime.timedelta(days=rng.randrange((end - first).days))
    return wording.date(day, **options)


def some_time(rng):
    """As "halb vier", "acht Uhr abends" or "siebzehn Uhr zweiundvierzig"."""
    kind = rng.random()
    if kind < 0.25:
        return wording.timetable(rng.randrange(24), rng.randrange(60))
    hour, minute = rng.randint(1, 12), 5 * rng.randrange(12)
    german, english = wording.clock(hour, minute)
    if kind < 0.8 or hour == 12:
        return german, english
    if hour < 5:
        part = rng.choice([("nachts", "at night"), ("nachmittags", "in the afternoon")])
    else:
        part = rng.choice([("morgens", "in the morning"), ("abends", "in the evening")])
    return f"{german} {part[0]}", f"{english} {part[1]}"


def some_when(rng):
    """When something will happen: a day, or a day and a time."""
    kind = rng.random()
    if kind < 0.2:
        return some_date(rng, since=2025, with_year=rng.random() < 0.7)
    if kind < 0.35:
        return some_date(rng, since=2025, with_weekday=True, with_year=rng.random() < 0.3)
    if kind < 0.6:
        german, english = some_date(rng, since=2025, with_year=rng.random() < 0.2)
    elif kind < 0.8:
        de_weekday, en_weekday = rng.choice(wording.WEEKDAYS)
        german, english = f"am {de_weekday}", f"on {en_weekday}"
    else:
        german, english = rng.choice([("heute", "today"), ("morgen", "tomorrow")])
    de_time, en_time = some_time(rng)
    return f"{german} um {de_time}", f"{english} at {en_time}"


def some_price(rng):
    """From one cent above a euro to 999 euros."""
    if rng.random() < 0.3:
        return wording.price(some_number(rng, 999))
    euros = 1 if rng.random() < 0.03 else some_number(rng, 999)
    return wording.price(euros, rng.randint(1, 99), short=rng.random() < 0.5)


def some_quantity(rng):
    """As ("zweieinhalb Liter Milch", "two and a half litres of milk")."""
    de_unit, singular, plural, stuffs = rng.choice(UNITS)
    de_stuff, en_stuff = rng.choice(stuffs)
    kind = rng.random()
    if kind < 0.8:
        german, english = wording.amount(1 if kind < 0.1 else some_number(rng, 999))
    else:
        german, english = wording.amount(rng.randint(1, 9), half=True)
    unit = singular if english == "one" else plural
    return f"{german} {de_unit} {de_stuff}", f"{english} {unit} of {en_stuff}"


def some_span(rng):
    """As ("drei Tagen", "three days")."""
    n, (german, english) = rng.randint(2, 99), rng.choice(SPANS)
    return f"{wording.de_count(n)} {german}", f"{wording.en_cardinal(n)} {english}"


def some_ordinal(rng, ending):
    """Up to the 99th, with the German `ending` that the sentence needs."""
    n = rng.randint(1, 99)
    return wording.de_ordinal(n, ending), wording.en_ordinal(n)


def some_subject(rng):
    """One of GOODS at the start of a sentence."""
    german, english = rng.choice(GOODS)
    german = german.replace("den ", "der ")
    return german[0].upper() + german[1:], english[0].upper() + english[1:]


def any_date(rng):
    """With or without weekday, with or without year."""
    return some_date(rng, with_weekday=rng.random() < 0.3, with_year=rng.random() < 0.8)


SLOTS = {
    "Event": lambda rng: rng.choice(EVENTS),
    "Goods": some_subject,
    "birthday": lambda rng: some_date(rng, until=2025, with_year=True),
    "city": lambda rng: rng.choice(CITIES),
    "count": lambda rng: wording.amount(some_number(rng, 9999)),
    "date": any_date,
    "ordinal_n": lambda rng: some_ordinal(rng, "n"),
    "ordinal_r": lambda rng: some_ordinal(rng, "r"),
    "price": some_price,
    "quantity": some_quantity,
    "span": some_span,
    "time": some_time,
    "when": some_when,
}


def fill(german, english, rng):
    """Both sides of a template with the same random pairs in their slots."""
    names = [name for _, name, _, _ in string.Formatter().parse(german) if name]
    fillers = {name: SLOTS[name](rng) for name in names}
    de_fillers = {name: filler[0] for name, filler in fillers.items()}
    en_fillers = {name: filler[1] for name, filler in fillers.items()}
    return german.format(**de_fillers), english.format(**en_fillers)


def generate(count, seed):
    """`count` pairs (German, English), the same for the same seed; no sentence occurs twice.

    Raises ValueError if the templates do not yield that many.
    """
    rng = random.Random(seed)
    weights = [weight for weight, _, _ in TEMPLATES]
    pairs, seen = [], set()
    for _ in range(5 * count + 100):
        if len(pairs) == count:
            return pairs
        _, german, english = rng.choices(TEMPLATES, weights)[0]
        pair = fill(german, english, rng)
        sides = set(enumerate(pair))  # a German and an English sentence may be the same string
        if sides.isdisjoint(seen):
            seen |= sides
            pairs.append(pair)
    raise ValueError(f"the templates gave only {len(pairs)} of {count} sentences")


def split(pairs, held_out):
    """{"train", "valid", "test"} -> pairs, `held_out` of them in each of the last two."""
    return {
        "train": pairs[2 * held_out :],
        "valid": pairs[:held_out],
        "test": pairs[held_out : 2 * held_out],
    }


def write(parts, out):
    """Write {part}.{de,en} under `out`; each file appears whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        for side, language in enumerate(("de", "en")):
            path = out / f"{part}.{language}"
            draft = out / f"{part}.{language}.tmp"
            draft.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
            os.replace(draft, path)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--sentences", type=int, default=50_000, help="in all (%(default)s)")
    parser.add_argument("--held-out", type=int, help="in valid, and in test (1%% of all)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    args = parser.parse_args()
    held_out = args.sentences // 100 if args.held_out is None else args.held_out
    if held_out < 1 or args.sentences <= 2 * held_out:
        parser.error("--sentences must be at least 100 and more than twice --held-out")
    try:
        parts = split(generate(args.sentences, args.seed), held_out)
    except ValueError as error:
        sys.exit(f"error: {error}; ask for fewer --sentences")
    write(parts, args.out)
    print("wrote " + ", ".join(f"{len(pairs)} {part}" for part, pairs in parts.items()))


if __name__ == "__main__":
    main()
