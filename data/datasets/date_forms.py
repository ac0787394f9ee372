"""Date formats of CLDR as templates, and the strings that two dates share."""

import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
from babel import Locale, localedata
from babel.dates import DateTimeFormat, get_date_format

FORMS = ("full", "long", "medium")
"""CLDR's date forms that name the century, so that the text can tell the year."""

_FIELDS = {
    "y": "%(year)d",
    "yyyy": "%(year)04d",
    "yy": "%(short_year)02d",
    "M": "%(month)d",
    "MM": "%(month)02d",
    "d": "%(day)d",
    "dd": "%(day)02d",
}
_MONTHS_AND_WEEKDAYS = {
    (day.month, day.weekday()): day for day in (datetime.date(2001, 1, 1) + datetime.timedelta(n) for n in range(365))
}

Templates = dict[tuple[str, int, int], str]
"""(form, month, weekday) -> template; month 1-12, weekday 0-6 from Monday, as in `datetime`."""


def write(template: str, day: datetime.date) -> str:
    """Write `day` by the template of its month and weekday."""
    return template % _numbers(day)


def _numbers(day: datetime.date) -> dict[str, int]:
    return {"year": day.year, "short_year": day.year % 100, "month": day.month, "day": day.day}


@cache
def templates(language: str) -> Templates:
    """Return the templates of `language`: every date form, with only its numbers left open.

    `write(templates(language)[form, day.month, day.weekday()], day)` is `babel.dates.format_date(day, form, language)`,
    and 50 times as fast. Raises ValueError for a pattern with a field other than year, month, day, weekday and era.
    """
    locale = Locale.parse(language)
    result = {}
    for form in FORMS:
        literals_and_fields = re.split(r"%\((\w+)\)s", get_date_format(form, locale).format)
        for field in literals_and_fields[1::2]:
            if field not in _FIELDS and field[0] not in "MLEcG":
                raise ValueError(f"the {form} date pattern of {language} has a field {field!r} that is not handled")
        for (month, weekday), day in _MONTHS_AND_WEEKDAYS.items():
            names = DateTimeFormat(day, locale)
            parts = list(literals_and_fields)
            parts[1::2] = [_FIELDS.get(field) or names[field].replace("%", "%%") for field in parts[1::2]]
            result[form, month, weekday] = "".join(parts)
    return result


@cache
def languages() -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """List the languages whose dates CLDR localises, as codes, and those left out, by reason.

    A language is a locale without territory and variant. A script of it (`uz_Cyrl`) counts as one more language where
    it writes some date in another way than the bare code (`uz`), and is left out where it does not.
    """
    codes = [code for code in localedata.locale_identifiers() if code != "root"]
    locales = {code: Locale.parse(code) for code in sorted(codes)}
    kept, unlocalised, same = [], [], []
    for code, locale in locales.items():
        if locale.territory or locale.variant:
            continue
        if templates(code) == templates("root"):
            unlocalised.append(code)
        elif locale.script and templates(code) == templates(locale.language):
            same.append(code)
        else:
            kept.append(code)
    return tuple(kept), {
        "dates are not localised": tuple(unlocalised),
        "script writes dates as the bare language does": tuple(same),
    }


def strangeness(codes: Sequence[str]) -> dict[str, float]:
    """Measure how badly each language's months are guessed from the other languages' spellings, between 0 and 1.

    The guess is naive Bayes over letter trigrams (0.1 added to each count), leaving out the language itself; what is
    given is the probability that it leaves to the eleven wrong months, mean over the months of the long and the medium
    form. 0 where months are numbers. English has 0.00, Zulu 0.04, Korean 0.38, Basque 0.76, Thai 0.92.
    """
    trigrams = {code: _trigrams(code) for code in codes}
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(12))
    for of_language in trigrams.values():
        for trigram, months in of_language.items():
            counts[trigram] += months
    result = {}
    for code, of_language in trigrams.items():
        wrong = []
        for form in ("long", "medium"):
            for month in range(1, 13):
                template = templates(code)[form, month, 0]
                votes = sum(np.log(counts[each] - of_language[each] + 0.1) for each in _trigrams_of(template))
                odds = np.exp(votes - np.max(votes))
                wrong.append(0.0 if "%(month)" in template else 1 - odds[month - 1] / odds.sum())
        result[code] = float(np.mean(wrong))
    return result


def _trigrams(code: str) -> dict[str, np.ndarray]:
    """Map letter trigrams of the long and medium forms to the months that each occurs in, 12 values of 0 or 1."""
    result: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(12))
    for (form, month, weekday), template in templates(code).items():
        if form != "full" and weekday == 0:
            for trigram in _trigrams_of(template):
                result[trigram][month - 1] = 1
    return result


def _trigrams_of(template: str) -> set[str]:
    text = re.sub(" +", " ", re.sub(r"%\(\w+\)\d*d", " ", f" {template} ").lower())
    return {text[n : n + 3] for n in range(len(text) - 2)} or {text}


def ambiguous_days(
    used: Iterable[tuple[str, int, int]], days: Iterable[datetime.date]
) -> Mapping[tuple[str, int, int], set[datetime.date]]:
    """Find the days that a template writes as some template writes another day.

    `used` are the (template, month, weekday) of all languages and forms, `days` all days that a reader may think of.
    Exact: every string is the text of one day of `days`, or all its (template, month, weekday, day) are in the result.

    Texts can be equal only if they are so after each run of digits is replaced by `#`, or by `####` if it has four or
    more. A group of templates that can be equal in that sense is written out, unless it plainly reads in one way.
    """
    days_of = defaultdict(list)
    for day in days:
        days_of[day.month, day.weekday()].append((day, _numbers(day)))
    groups: dict[str, dict[str, set[tuple[int, int]]]] = defaultdict(lambda: defaultdict(set))
    for template, month, weekday in used:
        # Numbers are shortest and longest on these two days, if years have four digits.
        for extreme in (datetime.date(2001, 1, 1), datetime.date(2001, 12, 31)):
            skeleton = re.sub("[0-9]+", lambda run: "####" if len(run[0]) > 3 else "#", write(template, extreme))
            groups[skeleton][template].add((month, weekday))

    result = defaultdict(set)
    for group in groups.values():
        if _reads_in_one_way(group):
            continue
        readings = defaultdict(list)
        for template, months_and_weekdays in group.items():
            for month, weekday in months_and_weekdays:
                for day, numbers in days_of[month, weekday]:
                    readings[template % numbers].append((template, month, weekday, day))
        for reading in readings.values():
            if any(day != reading[0][3] for *_, day in reading):
                for template, month, weekday, day in reading:
                    result[template, month, weekday].add(day)
    return result


def _reads_in_one_way(group: Mapping[str, set[tuple[int, int]]]) -> bool:
    """Return whether all templates have the same fields in the same places, enough of them to tell the day.

    Digits that belong to a name (`M11`) may differ, for then the texts do. Padding is ignored, since `05` and `5` read
    alike. False is always right, only slower.
    """
    months = defaultdict(set)
    for template, months_and_weekdays in group.items():
        months[re.sub(r"\)\d+d", ")d", template)].update(month for month, _ in months_and_weekdays)
    if len({re.sub("[0-9]+", "0", template) for template in months}) > 1:
        return False
    fields = set(re.findall(r"%\((\w+)\)", next(iter(months))))
    touching = re.search(r"[0-9]%\(|\)d[0-9]|\)d%\(", next(iter(months)))
    month_known = "month" in fields or all(len(named) == 1 for named in months.values())
    return {"year", "day"} <= fields and month_known and not touching
