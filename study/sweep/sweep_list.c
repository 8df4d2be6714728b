/* sweep_list.c - see sweep_list.h. */
#include "study/sweep/sweep_list.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/derive.h"

enum { MOST_VALUES = 1000, WORD = 256 };

/* A part of a text, without the white space around it. */
struct part {
    const char *at;
    size_t length;
};

static struct part trimmed(const char *at, size_t length)
{
    for (; length > 0 && isspace((unsigned char)*at); at++)
        length--;
    while (length > 0 && isspace((unsigned char)at[length - 1]))
        length--;
    return (struct part){at, length};
}

/* ---- lists --------------------------------------------------------------------------------- */

struct list {
    const char *name;
    char **values;
    size_t n, capacity;
};

static dpb_status add_value(struct list *list, struct part value)
{
    if (value.length == 0)
        return dpb_fail(DPB_USAGE, "%s has an empty value in its list", list->name);
    for (size_t i = 0; i < list->n; i++)
        if (strlen(list->values[i]) == value.length &&
            memcmp(list->values[i], value.at, value.length) == 0)
            return dpb_fail(DPB_USAGE, "%s has '%s' twice; to repeat measurements set repeats",
                            list->name, list->values[i]);
    if (list->n == list->capacity) {
        size_t capacity = 2 * list->capacity + 8;
        char **grown = realloc(list->values, capacity * sizeof *grown);
        DPB_TRY(dpb_allocated(grown));
        list->values = grown;
        list->capacity = capacity;
    }
    char *copy = strndup(value.at, value.length);
    DPB_TRY(dpb_allocated(copy));
    list->values[list->n++] = copy;
    return DPB_OK;
}

/* FIRST..LAST [UNIT] [xFACTOR | +STEP] */
struct range {
    double first, last, by;
    bool multiplies;
    char unit[16];
};

static bool parse_range(const char *text, struct range *range)
{
    char first[32] = "", *end;
    const char *dots = strstr(text, "..");
    *range = (struct range){.by = 1};
    if (!dots || (size_t)(dots - text) >= sizeof first)
        return false;
    memcpy(first, text, (size_t)(dots - text));
    if (dpb_parse_real(first, &range->first) != DPB_PARSED)
        return false;
    text = dots + 2;
    range->last = strtod(text, &end);
    if (end == text)
        return false;
    text = end + strspn(end, " \t");
    size_t unit = strcspn(text, " \tx+");
    if (unit >= sizeof range->unit)
        return false;
    memcpy(range->unit, text, unit);
    text += unit + strspn(text + unit, " \t");
    if (*text == '\0')
        return true;
    range->multiplies = *text == 'x';
    if (!range->multiplies && *text != '+')
        return false;
    range->by = strtod(text + 1, &end);
    return end > text + 1 && *end == '\0';
}

static dpb_status add_range(struct list *list, const char *text, const struct range *range)
{
    bool grows = range->multiplies ? range->by > 1 && range->first > 0 : range->by > 0;
    if (!grows || !(range->last >= range->first) || !isfinite(range->last))
        return dpb_fail(
            DPB_USAGE,
            "%s: '%s' is no range: write FIRST..LAST, with FIRST below LAST, and xFACTOR "
            "above 1 or +STEP above 0 behind it; quote the value if it is a text",
            list->name, text);
    const double slack = 1e-12 * fmax(fabs(range->first), fabs(range->last));
    double value = range->first;
    for (size_t i = 0; value <= range->last + slack; i++) {
        char word[64];
        if (i == MOST_VALUES)
            return dpb_fail(DPB_USAGE, "%s: '%s' has more than %d values", list->name, text,
                            MOST_VALUES);
        int n =
            snprintf(word, sizeof word, "%.12g%s%s", value, range->unit[0] ? " " : "", range->unit);
        DPB_TRY(add_value(list, (struct part){word, (size_t)n}));
        value = range->multiplies ? value * range->by : range->first + (double)(i + 1) * range->by;
    }
    return DPB_OK;
}

static dpb_status add_item(struct list *list, struct part item)
{
    char text[WORD];
    struct range range;
    if (item.length >= 2 && item.at[0] == '"' && item.at[item.length - 1] == '"')
        return add_value(list, (struct part){item.at + 1, item.length - 2});
    if (item.length >= sizeof text)
        return add_value(list, item);
    memcpy(text, item.at, item.length);
    text[item.length] = '\0';
    return parse_range(text, &range) ? add_range(list, text, &range) : add_value(list, item);
}

/* Up to a separator outside of quotes, or the end; NULL: a quote has no end. */
static const char *item_end(const char *at, char separator)
{
    bool quoted = false;
    for (; *at != '\0' && (quoted || *at != separator); at++)
        quoted = quoted != (*at == '"');
    return quoted ? NULL : at;
}

static dpb_status fill(const char *text, struct list *list)
{
    const char *semicolon = item_end(text, ';');
    char separator = semicolon && *semicolon == ';' ? ';' : ',';
    for (const char *end; text; text = *end == '\0' ? NULL : end + 1) {
        end = item_end(text, separator);
        if (!end)
            return dpb_fail(DPB_USAGE, "%s has a quote without its end", list->name);
        DPB_TRY(add_item(list, trimmed(text, (size_t)(end - text))));
    }
    return DPB_OK;
}

dpb_status dpb_sweep_list(const char *list, const char *name, char ***values, size_t *n_values)
{
    struct list made = {.name = name};
    dpb_status status = fill(list, &made);
    if (status != DPB_OK) {
        dpb_sweep_list_destroy(made.values, made.n);
        return status;
    }
    *values = made.values;
    *n_values = made.n;
    return DPB_OK;
}

void dpb_sweep_list_destroy(char **values, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++)
        free(values[i]);
    free((void *)values);
}

/* ---- conditions ---------------------------------------------------------------------------- */

struct test {
    char left[WORD], section[WORD], key[WORD], operator[3], value[WORD];
    bool arithmetic; /* on the left: then `section` and `key` are none */
    bool quoted;     /* the value */
};

/* The end of a test: where " and " or " or " begins outside of quotes, or the text ends. */
static const char *test_end(const char *at)
{
    bool quoted = false;
    for (; *at != '\0'; at++) {
        quoted = quoted != (*at == '"');
        if (!quoted && isspace((unsigned char)*at) &&
            (dpb_begins_with(at + 1, "and ") || dpb_begins_with(at + 1, "or ")))
            return at;
    }
    return at;
}

/* A second operator in a value stands where `and` or `or` was meant. */
static bool take_value(struct part part, struct test *test)
{
    char *value = test->value;
    const bool quoted = part.length >= 2 && part.at[0] == '"' && part.at[part.length - 1] == '"';
    test->quoted = quoted;
    snprintf(value, WORD, "%.*s", (int)part.length - 2 * quoted, part.at + quoted);
    return value[0] != '\0' && !strpbrk(value, quoted ? "\"" : "=!<>&|,;'\"");
}

static bool take_test(struct part part, struct test *test)
{
    static const char *const operators[] = {"=", "!=", "<", "<=", ">", ">=", NULL};
    char text[WORD] = "";
    if (part.length >= sizeof text)
        return false;
    memcpy(text, part.at, part.length);
    const size_t key = strcspn(text, "=!<>"), sign = strspn(text + key, "=!<>");
    const struct part left = trimmed(text, key);
    const char *dot = memchr(left.at, '.', left.length);
    size_t known = 0;
    snprintf(test->left, WORD, "%.*s", (int)left.length, left.at);
    test->arithmetic = dpb_expression_is(test->left) && strpbrk(test->left, "*/+-(");
    if (!dot || sign == 0 || sign >= sizeof test->operator)
        return false;
    snprintf(test->operator, sizeof test->operator, "%.*s", (int)sign, text + key);
    while (operators[known] && strcmp(operators[known], test->operator) != 0)
        known++;
    snprintf(test->section, WORD, "%.*s", (int)(dot - left.at), left.at);
    snprintf(test->key, WORD, "%.*s", (int)(left.at + left.length - dot - 1), dot + 1);
    return operators[known] &&
           take_value(trimmed(text + key + sign, part.length - key - sign), test);
}

/* False: one of the two is no number. A value of an unknown option is a text. */
static bool number_of(const json_t *value, double *number)
{
    *number = json_number_value(value);
    return json_is_number(value) ||
           (json_is_string(value) &&
            dpb_parse_real(json_string_value(value), number) == DPB_PARSED);
}

static bool is_ordered(const char *operator, double x, double y)
{
    return (operator[1] == '=' && x == y) || (operator[0] == '<' ? x < y : x> y);
}

/* Both sides as numbers; those that differ by rounding are equal. */
static dpb_status compare(const struct test *test, const char *name, dpb_sweep_number_of *quantity,
                          const void *context, bool *holds)
{
    struct dpb_amount x, y;
    DPB_TRY(quantity(context, name, test->left, &x));
    DPB_TRY(quantity(context, name, test->value, &y));
    if (x.bytes != y.bytes || x.seconds != y.seconds)
        return dpb_fail(DPB_USAGE, "%s: '%s' and '%s' have different units", name, test->left,
                        test->value);
    if (fabs(x.value - y.value) <= 1e-12 * fabs(x.value))
        y.value = x.value;
    *holds = test->operator[0] == '='   ? x.value == y.value
             : test->operator[0] == '!' ? x.value != y.value
                                        : is_ordered(test->operator, x.value, y.value);
    return DPB_OK;
}

static dpb_status hold(const struct test *test, const char *name, const json_t *is,
                       const json_t *value, bool *holds)
{
    const char *operator= test->operator;
    const bool equal = json_equal(is, value);
    double x, y;
    *holds = equal == (operator[0] == '=');
    if (operator[0] != '<' && operator[0] != '>')
        return DPB_OK;
    char text[64];
    if (!number_of(is, &x) || !number_of(value, &y))
        return dpb_fail(DPB_USAGE, "%s: '%s %s %s': %s compares numbers", name,
                        dpb_config_text(is, text, sizeof text), operator, test->value, operator);
    *holds = is_ordered(operator, x, y);
    return DPB_OK;
}

static dpb_status evaluate(struct part part, const char *name, dpb_sweep_read *read,
                           dpb_sweep_number_of *quantity, const void *context, bool *holds)
{
    struct test test;
    json_t *is = NULL, *value = NULL;
    if (!take_test(part, &test))
        return dpb_fail(DPB_USAGE,
                        "%s: '%.*s' is no condition: write SECTION.KEY OP VALUE, OP one of "
                        "= != < <= > >=, several with `and` and `or` between them; quote a VALUE "
                        "with other signs",
                        name, (int)part.length, part.at);
    const struct dpb_setting right = {.value = test.value};
    if (test.arithmetic)
        return compare(&test, name, quantity, context, holds);
    dpb_status status = read(context, name, test.section, test.key, NULL, &is);
    if (status == DPB_OK && !is)
        status = dpb_fail(DPB_USAGE, "%s: %s.%s has no value here: make it an axis, or set it",
                          name, test.section, test.key);
    const bool derived = json_is_number(is) && !test.quoted && dpb_derive_is(&right);
    if (derived)
        DPB_THEN(status, compare(&test, name, quantity, context, holds));
    if (!derived)
        DPB_THEN(status, read(context, name, test.section, test.key, test.value, &value));
    if (!derived)
        DPB_THEN(status, hold(&test, name, is, value, holds));
    json_decref(is);
    json_decref(value);
    return status;
}

dpb_status dpb_sweep_when(const char *when, const char *name, dpb_sweep_read *read,
                          dpb_sweep_number_of *quantity, const void *context, bool *holds)
{
    bool any = false, all = true;
    for (const char *end;; when = end + 1 + (end[1] == 'a' ? 4 : 3)) {
        bool test = false;
        end = test_end(when);
        DPB_TRY(
            evaluate(trimmed(when, (size_t)(end - when)), name, read, quantity, context, &test));
        all &= test;
        if (*end != '\0' && end[1] == 'a')
            continue;
        any |= all;
        all = true;
        if (*end == '\0')
            break;
    }
    *holds = any;
    return DPB_OK;
}
