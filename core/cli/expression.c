/* expression.c - see expression.h. A recursive descent. */
#include "cli/expression.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"

enum { MOST_DEPTH = 64, WORD = 128 };

struct reader {
    const char *text, *at, *place;
    dpb_expression_name *name;
    void *context;
    int depth;
};

bool dpb_expression_is(const char *text)
{
    double number;
    if (dpb_parse_real(text, &number) != DPB_PARSED_MALFORMED)
        return false;
    if (text[0] && (strpbrk(text, "*/+(") || strchr(text + 1, '-')))
        return true;
    const size_t word = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    return isalpha((unsigned char)text[0]) && text[word] == '.';
}

DPB_PRINTF(2, 3) static dpb_status refuse(const struct reader *reader, const char *format, ...)
{
    char why[256];
    DPB_PRINT_ARGUMENTS(why, sizeof why, format);
    return dpb_fail(DPB_USAGE, "%s: '%s': %s", reader->place, reader->text, why);
}

static bool take(struct reader *reader, char c)
{
    reader->at += strspn(reader->at, " \t");
    const bool is = *reader->at == c;
    reader->at += is;
    return is;
}

/* ---- numbers and names --------------------------------------------------------------------- */

static const struct {
    const struct dpb_unit *units;
    double base;
    int bytes, seconds;
} kinds[] = {{dpb_size_units, 1, 1, 0}, {dpb_time_units, 1e9, 0, 1}, {dpb_rate_units, 1, 1, -1}};

/* The word at the place, if it is a unit; a size before a rate of the same name. */
static bool take_unit(struct reader *reader, struct dpb_amount *value)
{
    char word[16];
    size_t n = 0;
    while (isalpha((unsigned char)reader->at[n]))
        n++;
    if (reader->at[n] == '/' && reader->at[n + 1] == 's' &&
        !isalnum((unsigned char)reader->at[n + 2]))
        n += 2;
    snprintf(word, sizeof word, "%.*s", (int)n, reader->at);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (const struct dpb_unit *unit = kinds[i].units; unit->name; unit++)
            if (strcmp(unit->name, word) == 0) {
                *value = (struct dpb_amount){value->value * (double)unit->factor / kinds[i].base,
                                             kinds[i].bytes, kinds[i].seconds};
                reader->at += n;
                return true;
            }
    return false;
}

static dpb_status read_number(struct reader *reader, struct dpb_amount *value)
{
    char digits[WORD], *end;
    snprintf(digits, sizeof digits, "%s", reader->at);
    digits[strspn(digits, "0123456789.eE+-")] = '\0'; /* no hexadecimal ones */
    *value = (struct dpb_amount){.value = strtod(digits, &end)};
    if (end == digits)
        return refuse(reader, "a number or a name is missing before '%s'", reader->at);
    reader->at += end - digits;
    reader->at += strspn(reader->at, " \t");
    if (isalpha((unsigned char)*reader->at) && !take_unit(reader, value))
        return refuse(reader,
                      "unknown unit '%s'; units are those of sizes, times and rates: KiB, "
                      "ms, Gbit/s",
                      reader->at);
    return DPB_OK;
}

static dpb_status read_sum(struct reader *reader, struct dpb_amount *value);

static bool is_equal(const struct dpb_amount *a, const struct dpb_amount *b)
{
    return a->bytes == b->bytes && a->seconds == b->seconds;
}

/* A value that rounding has moved off a whole number is that number. */
static double settled(double value)
{
    return fabs(value - round(value)) <= 1e-12 * fabs(value) ? round(value) : value;
}

/* The arguments, behind the bracket. */
static dpb_status read_call(struct reader *reader, const char *name, struct dpb_amount *value)
{
    const bool least = strcmp(name, "min") == 0, most = strcmp(name, "max") == 0;
    const bool root = strcmp(name, "sqrt") == 0;
    DPB_TRY(read_sum(reader, value));
    for (struct dpb_amount other; (least || most) && take(reader, ',');) {
        DPB_TRY(read_sum(reader, &other));
        if (!is_equal(value, &other))
            return refuse(reader, "%s compares values of different units", name);
        value->value = least ? fmin(value->value, other.value) : fmax(value->value, other.value);
    }
    if (root && (value->bytes || value->seconds))
        return refuse(reader, "sqrt takes a number without a unit");
    if (root)
        value->value = sqrt(value->value);
    else if (strcmp(name, "floor") == 0)
        value->value = floor(settled(value->value));
    else if (strcmp(name, "ceil") == 0)
        value->value = ceil(settled(value->value));
    else if (strcmp(name, "round") == 0)
        value->value = round(value->value);
    else if (!least && !most)
        return refuse(reader, "there is no function '%s': min, max, floor, ceil, round, sqrt",
                      name);
    return take(reader, ')') ? DPB_OK : refuse(reader, "a ')' is missing");
}

static dpb_status read_factor(struct reader *reader, struct dpb_amount *value)
{
    char word[WORD];
    size_t n = 0;
    if (reader->depth >= MOST_DEPTH)
        return refuse(reader, "more than %d brackets in each other", MOST_DEPTH);
    if (take(reader, '-') || take(reader, '(')) {
        const bool minus = reader->at[-1] == '-';
        reader->depth++;
        DPB_TRY((minus ? read_factor : read_sum)(reader, value));
        reader->depth--;
        value->value = minus ? -value->value : value->value;
        return minus || take(reader, ')') ? DPB_OK : refuse(reader, "a ')' is missing");
    }
    if (!isalpha((unsigned char)*reader->at))
        return read_number(reader, value);
    while (isalnum((unsigned char)reader->at[n]) || reader->at[n] == '_' || reader->at[n] == '.')
        n++;
    if (n >= sizeof word)
        return refuse(reader, "a name has more than %d characters", WORD - 1);
    snprintf(word, sizeof word, "%.*s", (int)n, reader->at);
    reader->at += n;
    if (!take(reader, '('))
        return reader->name(reader->context, word, value);
    reader->depth++;
    DPB_TRY(read_call(reader, word, value));
    reader->depth--;
    return DPB_OK;
}

/* ---- sums ---------------------------------------------------------------------------------- */

static dpb_status read_product(struct reader *reader, struct dpb_amount *value)
{
    DPB_TRY(read_factor(reader, value));
    while (take(reader, '*') || take(reader, '/')) {
        const int power = reader->at[-1] == '*' ? 1 : -1;
        struct dpb_amount other;
        DPB_TRY(read_factor(reader, &other));
        value->value = power > 0 ? value->value * other.value : value->value / other.value;
        value->bytes += power * other.bytes;
        value->seconds += power * other.seconds;
    }
    return DPB_OK;
}

static dpb_status read_sum(struct reader *reader, struct dpb_amount *value)
{
    DPB_TRY(read_product(reader, value));
    while (take(reader, '+') || take(reader, '-')) {
        const double sign = reader->at[-1] == '+' ? 1 : -1;
        struct dpb_amount other;
        DPB_TRY(read_product(reader, &other));
        if (!is_equal(value, &other))
            return refuse(reader, "adds values of different units");
        value->value += sign * other.value;
    }
    return DPB_OK;
}

dpb_status dpb_expression(const char *text, const char *place, dpb_expression_name *name,
                          void *context, struct dpb_amount *value)
{
    struct reader reader = {text, text, place, name, context, 0};
    struct dpb_amount made;
    DPB_TRY(read_sum(&reader, &made));
    reader.at += strspn(reader.at, " \t");
    if (*reader.at != '\0')
        return refuse(&reader, "'%s' follows the expression", reader.at);
    if (!isfinite(made.value))
        return refuse(&reader, "its value is not finite: a division by 0?");
    *value = made;
    return DPB_OK;
}
