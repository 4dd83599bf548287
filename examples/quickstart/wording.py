"""Numbers, dates, times, prices and quantities in German and English words.

Each function returns the only wording that the demo uses, mostly as a pair (German, English).
"""

import functools

from num2words import num2words

MONTHS = [
    ("Januar", "January"), ("Februar", "February"), ("März", "March"), ("April", "April"),
    ("Mai", "May"), ("Juni", "June"), ("Juli", "July"), ("August", "August"),
    ("September", "September"), ("Oktober", "October"), ("November", "November"),
    ("Dezember", "December"),
]  # fmt: skip
WEEKDAYS = [
    ("Montag", "Monday"), ("Dienstag", "Tuesday"), ("Mittwoch", "Wednesday"),
    ("Donnerstag", "Thursday"), ("Freitag", "Friday"), ("Samstag", "Saturday"),
    ("Sonntag", "Sunday"),
]  # fmt: skip
# Minutes past the hour. German counts towards the next hour from 25 past, English from 35 past.
CLOCK = {
    5: ("fünf nach", "five past"), 10: ("zehn nach", "ten past"),
    15: ("viertel nach", "a quarter past"), 20: ("zwanzig nach", "twenty past"),
    25: ("fünf vor halb", "twenty-five past"), 30: ("halb", "half past"),
    35: ("fünf nach halb", "twenty-five to"), 40: ("zwanzig vor", "twenty to"),
    45: ("viertel vor", "a quarter to"), 50: ("zehn vor", "ten to"), 55: ("fünf vor", "five to"),
}  # fmt: skip


@functools.cache
def de_cardinal(n):
    """In counting: 1 -> "eins", 21 -> "einundzwanzig"."""
    return num2words(n, lang="de")


def de_count(n):
    """Before a noun: 1 -> "ein", 101 -> "einhundertein"."""
    word = de_cardinal(n)
    return word[:-1] if word.endswith("eins") else word


@functools.cache
def en_cardinal(n):
    """2345 -> "two thousand three hundred and forty-five"."""
    return num2words(n, lang="en").replace(",", "")


@functools.cache
def de_ordinal(n, ending=""):
    """23 -> "dreiundzwanzigste" + ending: "n" after am, im, zum; "r" after mein."""
    return num2words(n, lang="de", to="ordinal") + ending


@functools.cache
def en_ordinal(n):
    """23 -> "twenty-third"."""
    return num2words(n, lang="en", to="ordinal").replace(",", "")


@functools.cache
def year(n):
    """1984 -> ("neunzehnhundertvierundachtzig", "nineteen eighty-four").

    Raises ValueError outside 1100..2099, since other years are read differently.
    """
    if not 1100 <= n < 2100:
        raise ValueError(f"year {n} is not in 1100..2099")
    english = num2words(n, lang="en", to="year").replace("oh-", "oh ")
    return num2words(n, lang="de", to="year"), english


def date(day, with_weekday=False, with_year=False):
    """A datetime.date -> ("am dritten Mai", "on the third of May"), optionally with more."""
    de_month, en_month = MONTHS[day.month - 1]
    german = f"{de_ordinal(day.day, 'n')} {de_month}"
    english = f"the {en_ordinal(day.day)} of {en_month}"
    if with_weekday:
        de_weekday, en_weekday = WEEKDAYS[day.weekday()]
        german, english = f"{de_weekday}, dem {german}", f"{en_weekday}, {english}"
    if with_year:
        de_year, en_year = year(day.year)
        german, english = f"{german} {de_year}", f"{english} {en_year}"
    return f"am {german}", f"on {english}"


def clock(hour, minute):
    """By the 12-hour clock, minutes in fives: (3, 30) -> ("halb vier", "half past three")."""
    if minute == 0:
        return f"{de_count(hour)} Uhr", f"{en_cardinal(hour)} o'clock"
    german, english = CLOCK[minute]
    following = hour % 12 + 1
    de_hour = following if minute >= 25 else hour
    en_hour = following if minute >= 35 else hour
    return f"{german} {de_cardinal(de_hour)}", f"{english} {en_cardinal(en_hour)}"


def timetable(hour, minute):
    """By the 24-hour clock: (17, 42) -> ("siebzehn Uhr zweiundvierzig", "five forty-two pm")."""
    half = "am" if hour < 12 else "pm"
    en_hour = en_cardinal((hour - 1) % 12 + 1)
    if minute == 0:
        german = f"{de_count(hour)} Uhr"
        if hour == 0:
            return german, "midnight"
        # "neun Uhr" is used for both halves of the day and must be translated as in `clock`.
        return german, f"{en_hour} o'clock" if hour <= 12 else f"{en_hour} {half}"
    en_minute = f"oh {en_cardinal(minute)}" if minute < 10 else en_cardinal(minute)
    return f"{de_count(hour)} Uhr {de_cardinal(minute)}", f"{en_hour} {en_minute} {half}"


def price(euros, cents=0, short=False):
    """(3, 50) -> ("drei Euro und fünfzig Cent", "three euros and fifty cents").

    `short` leaves out the word for cents: "drei Euro fünfzig", "three euros fifty".
    """
    german = f"{de_count(euros)} Euro"
    english = f"{en_cardinal(euros)} {'euro' if euros == 1 else 'euros'}"
    if cents == 0:
        return german, english
    if short:
        return f"{german} {de_cardinal(cents)}", f"{english} {en_cardinal(cents)}"
    unit = "cent" if cents == 1 else "cents"
    return f"{german} und {de_count(cents)} Cent", f"{english} and {en_cardinal(cents)} {unit}"


def amount(whole, half=False):
    """2 -> ("zwei", "two"); with half "zweieinhalb"."""
    if half:
        german = "anderthalb" if whole == 1 else f"{de_count(whole)}einhalb"
        return german, f"{en_cardinal(whole)} and a half"
    return de_count(whole), en_cardinal(whole)
