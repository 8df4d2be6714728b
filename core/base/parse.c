/*
 * parse.c - one value out of its text.
 */
#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

const struct dpb_unit dpb_size_units[] = {{"B", 1},
                                          {"kB", 1000},
                                          {"KiB", UINT64_C(1) << 10},
                                          {"MB", 1000000},
                                          {"MiB", UINT64_C(1) << 20},
                                          {"GB", 1000000000},
                                          {"GiB", UINT64_C(1) << 30},
                                          {NULL, 0}};

const struct dpb_unit dpb_time_units[] = {
    {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"min", UINT64_C(60000000000)},
    {NULL, 0}};

const struct dpb_unit dpb_rate_units[] = {{"B/s", 1},
                                          {"kbit", 125},
                                          {"kbit/s", 125},
                                          {"kB", 1000},
                                          {"kB/s", 1000},
                                          {"Mbit", 125000},
                                          {"Mbit/s", 125000},
                                          {"MB", 1000000},
                                          {"MB/s", 1000000},
                                          {"Gbit", 125000000},
                                          {"Gbit/s", 125000000},
                                          {"GB", 1000000000},
                                          {"GB/s", 1000000000},
                                          {NULL, 0}};

void dpb_unit_names(const struct dpb_unit *units, char *names, size_t capacity)
{
    struct dpb_text text = dpb_text_in(names, capacity);
    for (; units->name; units++)
        dpb_text_item(&text, ", ", "%s", units->name);
}

/* strtoll and strtod accept leading blanks; strtod also accepts words and hexadecimal numbers. */
static bool consists_of(const char *text, const char *characters)
{
    return *text != '\0' && text[strspn(text, characters)] == '\0';
}

dpb_parsed dpb_parse_int(const char *text, int64_t *value)
{
    char *end;
    if (!consists_of(text, "+-0123456789"))
        return DPB_PARSED_MALFORMED;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (*end != '\0' || end == text)
        return DPB_PARSED_MALFORMED;
    if (errno == ERANGE)
        return DPB_PARSED_OVERFLOW;
    *value = parsed;
    return DPB_PARSED;
}

dpb_parsed dpb_parse_real(const char *text, double *value)
{
    char *end;
    if (!consists_of(text, "+-0123456789.eE"))
        return DPB_PARSED_MALFORMED;
    errno = 0;
    double parsed = strtod(text, &end);
    if (*end != '\0' || end == text)
        return DPB_PARSED_MALFORMED;
    if (!isfinite(parsed))
        return DPB_PARSED_OVERFLOW;
    if (parsed == 0 && errno == ERANGE)
        return DPB_PARSED_UNDERFLOW;
    *value = parsed;
    return DPB_PARSED;
}

dpb_parsed dpb_parse_seconds(const char *text, int64_t *ns)
{
    double seconds;
    dpb_parsed parsed = dpb_parse_real(text, &seconds);
    if (parsed != DPB_PARSED)
        return parsed;
    if (seconds < 0)
        return DPB_PARSED_MALFORMED;
    if (seconds * 1e9 >= 0x1p63)
        return DPB_PARSED_OVERFLOW;
    *ns = llround(seconds * 1e9);
    return DPB_PARSED;
}

/* Reads WHOLE[.DECIMALS] as whole + decimals / scale; returns its end, or NULL. More than 18
 * significant decimals, or a whole part over INT64_MAX, give a whole part of UINT64_MAX, which
 * overflows with every unit. */
static const char *split_number(const char *text, uint64_t *whole, uint64_t *decimals,
                                uint64_t *scale)
{
    const char *begin = text;
    *whole = *decimals = 0;
    *scale = 1;
    for (; isdigit((unsigned char)*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        *whole = *whole > (INT64_MAX - digit) / 10 ? UINT64_MAX : *whole * 10 + digit;
    }
    if (text == begin)
        return NULL;
    if (*text != '.')
        return text;
    begin = ++text;
    for (int place = 1; isdigit((unsigned char)*text); text++, place++) {
        if (place <= 18) {
            *decimals = *decimals * 10 + (uint64_t)(*text - '0');
            *scale *= 10;
        } else if (*text != '0') {
            *scale = 0;
        }
    }
    return text == begin ? NULL : text;
}

dpb_parsed dpb_parse_quantity(const char *text, const struct dpb_unit *units, const char *bare_unit,
                              uint64_t *value)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t whole, decimals, scale;
    const char *unit = split_number(text, &whole, &decimals, &scale);
    if (!unit)
        return DPB_PARSED_MALFORMED;
    unit += strspn(unit, " \t");
    if (*unit == '\0')
        unit = bare_unit;
    if (!unit)
        return DPB_PARSED_NO_UNIT;
    if (!isalpha((unsigned char)*unit))
        return DPB_PARSED_MALFORMED;
    while (units->name && strcmp(units->name, unit) != 0)
        units++;
    if (!units->name)
        return DPB_PARSED_BAD_UNIT;
    wide fraction = (wide)decimals * units->factor;
    if (scale == 0 || fraction % scale != 0)
        return DPB_PARSED_NOT_INTEGRAL;
    wide result = (wide)whole * units->factor + fraction / scale;
    if (result > INT64_MAX)
        return DPB_PARSED_OVERFLOW;
    *value = (uint64_t)result;
    return DPB_PARSED;
}

bool dpb_parse_size(const char *text, uint64_t *bytes)
{
    return dpb_parse_quantity(text, dpb_size_units, "B", bytes) == DPB_PARSED;
}

bool dpb_parse_time(const char *text, const char *bare_unit, int64_t *ns)
{
    uint64_t value;
    if (dpb_parse_quantity(text, dpb_time_units, bare_unit, &value) != DPB_PARSED)
        return false;
    *ns = (int64_t)value;
    return true;
}

bool dpb_parse_bool(const char *text, bool *value)
{
    static const char *const words[2][4] = {{"no", "false", "off", "0"},
                                            {"yes", "true", "on", "1"}};
    for (int truth = 0; truth < 2; truth++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(text, words[truth][i]) == 0) {
                *value = truth;
                return true;
            }
    return false;
}

enum { WORD_BYTES = 64 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment. Both words are shorter than WORD_BYTES. */
static size_t edits(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][WORD_BYTES + 1];
    size_t *above2 = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n_b; j++)
        above[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = smaller(above[j - 1] + (x != y), smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                row[j] = smaller(row[j], above2[j - 2] + 1);
        }
        size_t *oldest = above2;
        above2 = above;
        above = row;
        row = oldest;
    }
    return above[n_b];
}

void dpb_nearest_offer(struct dpb_nearest *nearest, const char *candidate)
{
    size_t n_word = strlen(nearest->word), n_candidate = strlen(candidate);
    if (n_word > WORD_BYTES || n_candidate > WORD_BYTES)
        return;
    size_t distance = edits(nearest->word, n_word, candidate, n_candidate);
    size_t longer = n_word > n_candidate ? n_word : n_candidate;
    if (n_word > 2 && strncasecmp(nearest->word, candidate, n_word) == 0)
        distance = distance < 1 ? distance : 1; /* its begin: resnet of resnet50 */
    if (distance > longer / 3 || (nearest->found && distance >= nearest->distance))
        return;
    nearest->found = candidate;
    nearest->distance = distance;
}

const char *dpb_did_you_mean(const char *word, const char *const *names)
{
    struct dpb_nearest nearest = {.word = word};
    for (; *names; names++)
        dpb_nearest_offer(&nearest, *names);
    return nearest.found;
}
