"""Written dates: equal to Babel's, and ambiguous exactly where brute force says so."""

import datetime
import math
import random
from collections import defaultdict

import pytest
from babel import Locale
from babel.dates import format_date
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.datasets import date_forms
from data.datasets.date_forms import FORMS, ambiguous_days, languages, strangeness, templates, write


def days(first: int, last: int) -> list[datetime.date]:
    start = datetime.date(first, 1, 1)
    return [start + datetime.timedelta(n) for n in range((datetime.date(last + 1, 1, 1) - start).days)]


def test_every_language_writes_as_babel_does():
    chosen, space = random.Random(0), days(1900, 2100)
    for code in languages()[0]:
        locale = Locale.parse(code)
        for form in FORMS:
            for day in chosen.sample(space, 5):
                written = write(templates(code)[form, day.month, day.weekday()], day)
                assert written == format_date(day, form, locale), (code, form, day)


def test_which_languages():
    kept, left_out = languages()
    assert {"ko", "en", "ar", "am", "eu", "uz", "uz_Cyrl", "zh", "zh_Hant"} <= set(kept)
    assert {"en_GB", "root"}.isdisjoint(kept)
    assert "zh_Hans" in left_out["script writes dates as the bare language does"]
    assert "jbo" in left_out["dates are not localised"]
    # Nothing is lost: every locale without territory and variant is kept or counted.
    everything = {
        code
        for code in date_forms.localedata.locale_identifiers()
        if code != "root" and not Locale.parse(code).territory and not Locale.parse(code).variant
    }
    assert sorted([*kept, *(code for codes in left_out.values() for code in codes)]) == sorted(everything)


def test_how_strange_months_are_to_the_others():
    """Against naive Bayes over trigrams, written out month by month for three small worlds."""
    names = {
        code: {
            (form, month): date_forms._trigrams_of(templates(code)[form, month, 0])
            for form in ("long", "medium")
            for month in range(1, 13)
        }
        for code in ("en", "de", "fr", "eu")
    }
    assert " ma" in names["en"]["long", 5] and "may" in names["en"]["long", 5] and "%" not in str(names)
    for others in (("de",), ("de", "fr"), ("de", "fr", "eu")):
        wrong = []
        for (_, month), trigrams in names["en"].items():
            odds = []
            for guess in range(1, 13):
                known = [[names[code][form, guess] for form in ("long", "medium")] for code in others]
                votes = [sum(trigram in long | medium for long, medium in known) + 0.1 for trigram in trigrams]
                odds.append(math.prod(votes))
            wrong.append(1 - odds[month - 1] / sum(odds))
        assert strangeness(("en", *others))["en"] == pytest.approx(sum(wrong) / 24, rel=1e-9)
    everywhere = strangeness(languages()[0])
    assert all(0 <= value <= 1 for value in everywhere.values())
    assert everywhere["ja"] == 0  # months are numbers
    assert (
        everywhere["en"] < 0.001 < everywhere["zu"] < 0.1 < everywhere["ko"] < 0.5 < everywhere["eu"] < everywhere["th"]
    )


def brute_force(spellings, space):
    """(template, month, weekday) -> days whose text is another day's text too, by writing everything out."""
    readings = defaultdict(set)
    for template, month, weekday in spellings:
        for day in space:
            if (day.month, day.weekday()) == (month, weekday):
                readings[write(template, day)].add(day)
    result = defaultdict(set)
    for template, month, weekday in spellings:
        for day in space:
            if (day.month, day.weekday()) == (month, weekday) and len(readings[write(template, day)]) > 1:
                result[template, month, weekday].add(day)
    return result


def used_by(codes):
    return {(template, month, weekday) for code in codes for (_, month, weekday), template in templates(code).items()}


# Teso and Ganda name different months `Mar`, Spanish and Duala `may`; others have digits inside names (`M11`).
MIXED = ("cs", "hr", "pl", "en", "rof", "kkj", "ar", "nmg", "ko", "vi", "lt", "sbp", "tok", "teo", "lg", "es", "dua")


@pytest.mark.parametrize("space", [days(2000, 2001), days(2027, 2028)])
def test_ambiguity_equals_brute_force(space):
    spellings = used_by(MIXED)
    assert ambiguous_days(spellings, space) == brute_force(spellings, space) != {}


def test_ambiguity_among_all_languages_equals_brute_force():
    """All languages at once, on a few days of each month: where names of months clash between languages."""
    space = [day for day in days(2026, 2028) if day.day in (1, 2, 10, 12, 31)]
    spellings = used_by(languages()[0])
    by_text = defaultdict(set)
    of = defaultdict(list)
    for day in space:
        of[day.month, day.weekday()].append(day)
    for template, month, weekday in spellings:
        for day in of[month, weekday]:
            by_text[write(template, day)].add(day)
    expected = {
        (template, month, weekday, day)
        for template, month, weekday in spellings
        for day in of[month, weekday]
        if len(by_text[write(template, day)]) > 1
    }
    found = ambiguous_days(spellings, space)
    assert {(*key, day) for key, at in found.items() for day in at} == expected
    assert expected  # the test would be empty otherwise


piece = st.sampled_from(["%(day)d", "%(day)02d", "%(month)d", "%(month)02d", "%(year)d", "%(short_year)02d"])
literal = st.sampled_from(["", " ", "/", "a", "1", "12", "%%", "01 "])


@settings(max_examples=200, deadline=None)
@given(
    st.sets(
        st.tuples(
            st.lists(st.one_of(piece, literal), min_size=1, max_size=7).map("".join),
            st.sampled_from([1, 2, 11, 12]),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=5,
    )
)
@example({("%(month)d%(day)d %(year)d", 1, 1), ("%(month)d%(day)d %(year)d", 11, 1)})  # 111 2011
def test_ambiguity_of_any_templates_equals_brute_force(spellings):
    """Two-digit years, day before month and after, fields that touch, digits in names."""
    space = [day for year in (1911, 2011, 2012) for day in days(year, year) if day.weekday() < 2]
    assert ambiguous_days(spellings, space) == brute_force(spellings, space)


def test_the_reader_is_told_about_a_pattern_that_is_not_handled(monkeypatch):
    class Pattern:
        format = "%(w)s %(y)s"

    monkeypatch.setattr(date_forms, "get_date_format", lambda form, locale: Pattern)
    with pytest.raises(ValueError, match="the full date pattern of en has a field 'w'"):
        templates.__wrapped__("en")


def test_a_percent_sign_in_a_name_is_itself(monkeypatch):
    class Names(dict):
        def __missing__(self, field):
            return "100%d"

    monkeypatch.setattr(date_forms, "DateTimeFormat", lambda day, locale: Names())
    template = templates.__wrapped__("en")["long", 2, 0]
    assert write(template, datetime.date(2026, 2, 2)) == "100%d 2, 2026"
