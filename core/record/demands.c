/* demands.c - see demands.h. */
#include "record/demands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "record/series.h"

enum { NAMES = 1024 };

/* ---- parsing ------------------------------------------------------------------------------- */

/* The keys of a command's rows; those of a sweep are its axes. */
static const char *keys_of(const char *command)
{
    static const struct {
        const char *command, *keys;
    } rows[] = {{"comm", "operation,size,model"},
                {"data", "threads"},
                {"links", "part,what,size,threads,cpu_node,memory_node,a,b,shared,plugin,device,"
                          "memory,from,to,way"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].command, command) == 0)
            return rows[i].keys;
    return NULL;
}

static dpb_status check_field(const char *command, const char *option, const char *text,
                              const char *name, const struct dpb_series_field **field)
{
    char names[NAMES];
    struct dpb_text list = dpb_text_in(names, sizeof names);
    *field = dpb_series_field_find(name);
    if (*field && dpb_text_lists((*field)->commands, ",", command, strlen(command)))
        return DPB_OK;
    for (const struct dpb_series_field *row = dpb_series_fields; row->name; row++)
        if (dpb_text_lists(row->commands, ",", command, strlen(command)))
            dpb_text_item(&list, ", ", "%s", row->name);
    return dpb_fail(DPB_USAGE, "%s %s: `dpbench %s` has no field '%s'; its fields are %s", option,
                    text, command, name, names);
}

/* In the field's unit. */
static bool parse_limit(const struct dpb_series_field *field, const char *text, double *limit)
{
    const bool time = field->kind == DPB_SERIES_TIME;
    const size_t length = strlen(text);
    char bare[32];
    uint64_t value;
    if (field->kind == DPB_SERIES_COUNTS && dpb_ends_on(text, "/s") && length < sizeof bare) {
        snprintf(bare, sizeof bare, "%.*s", (int)(length - strlen("/s")), text);
        text = bare;
    }
    if (dpb_parse_real(text, limit) == DPB_PARSED)
        return *limit > 0;
    if (field->kind == DPB_SERIES_COUNTS ||
        dpb_parse_quantity(text, time ? dpb_time_units : dpb_rate_units, NULL, &value) !=
            DPB_PARSED)
        return false;
    *limit = (double)value * (time ? 1e-9 : 1) / field->unit;
    return *limit > 0;
}

static dpb_status parse_keys(const char *command, const char *option, const char *text, char *list,
                             json_t *keys)
{
    const char *known = keys_of(command);
    char *rest = NULL;
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(word, '=');
        if (!value || value == word || value[1] == '\0')
            return dpb_fail(DPB_USAGE, "%s %s: '%s' is not KEY=VALUE", option, text, word);
        *value++ = '\0';
        if (known && !dpb_text_lists(known, ",", word, strlen(word)))
            return dpb_fail(DPB_USAGE, "%s %s: rows of `dpbench %s` have no key '%s'; keys are %s",
                            option, text, command, word, known);
        json_object_set_new(keys, word, dpb_json_string(value));
    }
    return DPB_OK;
}

/* `copy` is cut at its separators. */
static dpb_status parse(const char *command, const char *option, const char *text, char *copy,
                        json_t *demand)
{
    const struct dpb_series_field *field;
    double limit;
    char *number = strrchr(copy, '='), *keys = strchr(copy, '@');
    if (!number || number == copy || (keys && keys > number))
        return dpb_fail(DPB_USAGE,
                        "%s takes FIELD[@KEY=VALUE,...]=NUMBER, as in "
                        "'bus_gb_per_s@size=64MiB=10', not '%s'",
                        option, text);
    *number++ = '\0';
    if (keys)
        *keys++ = '\0';
    DPB_TRY(check_field(command, option, text, copy, &field));
    if (!parse_limit(field, number, &limit))
        return dpb_fail(DPB_USAGE, "%s %s: '%s' is no number above 0%s", option, text, number,
                        field->kind == DPB_SERIES_COUNTS  ? ""
                        : field->kind == DPB_SERIES_BYTES ? " or rate, as in 10GB/s or 10Gbit/s"
                                                          : " or time, as in 50us");
    json_t *wanted = json_object();
    json_object_update_new(demand,
                           json_pack("{s:s, s:s, s:s, s:f, s:o}", "option", option, "text", text,
                                     "field", field->name, "limit", limit, "keys", wanted));
    return keys ? parse_keys(command, option, text, keys, wanted) : DPB_OK;
}

dpb_status dpb_demand_parse(const char *command, const char *option, const char *text,
                            json_t **demands)
{
    char *copy = strdup(text);
    json_t *demand = json_object();
    if (!*demands)
        *demands = json_array();
    dpb_status status = dpb_allocated(copy && demand && *demands);
    DPB_THEN(status, parse(command, option, text, copy, demand));
    if (status == DPB_OK)
        json_array_append(*demands, demand);
    json_decref(demand);
    free(copy);
    return status;
}

/* ---- judging ------------------------------------------------------------------------------- */

static dpb_judged judge(const struct dpb_estimate *estimate, double limit, bool most)
{
    double low, high;
    dpb_estimate_interval(estimate, &low, &high);
    if (most ? high <= limit : low >= limit)
        return DPB_JUDGED_HOLDS;
    return (most ? low > limit : high < limit) ? DPB_JUDGED_FAILS : DPB_JUDGED_OPEN;
}

dpb_judged dpb_demand_judge(const double *x, size_t n, double limit, bool most)
{
    struct dpb_estimate estimate;
    dpb_series_estimate(x, n, &estimate);
    return judge(&estimate, limit, most);
}

/* A size may be written as options have it. */
static bool has_value(const json_t *value, const char *text)
{
    uint64_t wanted, is;
    if (json_is_integer(value))
        return dpb_parse_size(text, &wanted) && (json_int_t)wanted == json_integer_value(value);
    const char *of = dpb_json_text(value, "", "");
    return strcmp(of, text) == 0 ||
           (dpb_parse_size(text, &wanted) && dpb_parse_size(of, &is) && wanted == is);
}

static bool matches(const json_t *demand, const json_t *row)
{
    if (!json_object_get(json_object_get(row, "values"), dpb_json_text(demand, "field", "")))
        return false;
    dpb_each_member(json_object_get(demand, "keys"), key, value)
        if (!has_value(json_object_get(json_object_get(row, "key"), key), json_string_value(value)))
            return false;
    return true;
}

/* Names the keys of the rows that have the field, and one of them. */
static dpb_status refuse(const json_t *demand, const json_t *document)
{
    char names[NAMES], example[NAMES] = "";
    struct dpb_text list = dpb_text_in(names, sizeof names);
    json_t *seen = json_object();
    dpb_each_item(json_object_get(document, "series"), i, row) {
        const json_t *key = json_object_get(row, "key");
        if (!json_object_get(json_object_get(row, "values"), dpb_json_text(demand, "field", "")))
            continue;
        dpb_each_member(key, name, value) {
            (void)value;
            if (!json_object_get(seen, name))
                dpb_text_item(&list, ", ", "%s", name);
            json_object_set_new(seen, name, json_true());
        }
        dpb_series_key_text(key, example, sizeof example);
    }
    json_decref(seen);
    return dpb_fail(DPB_USAGE, "%s %s: no row has this field and these keys; keys are %s%s%s",
                    dpb_json_text(demand, "option", "?"), dpb_json_text(demand, "text", "?"),
                    names[0] != '\0' ? names : "none", example[0] != '\0' ? ", as in " : "",
                    example);
}

static dpb_status judge_row(const json_t *demand, const json_t *row)
{
    const char *field = dpb_json_text(demand, "field", "?");
    const bool most = dpb_json_is(demand, "option", "--most");
    const double limit = dpb_json_number(demand, "limit");
    struct dpb_estimate estimate;
    char key[NAMES];
    double low, high;
    size_t n;
    double *x = dpb_series_values(row, field, &n);
    dpb_series_estimate(x, n, &estimate);
    free(x);
    const dpb_judged judged = judge(&estimate, limit, most);
    if (judged == DPB_JUDGED_HOLDS)
        return DPB_OK;
    dpb_estimate_interval(&estimate, &low, &high);
    dpb_series_key_text(json_object_get(row, "key"), key, sizeof key);
    const char *at = key[0] != '\0' ? " at " : "";
    if (judged == DPB_JUDGED_FAILS)
        return dpb_fail(DPB_REGRESSION, "%s%s%s is %.4g [%.4g .. %.4g], %s %.4g", field, at, key,
                        exp(estimate.mean), low, high, most ? "more than" : "less than", limit);
    if (isfinite(low))
        return dpb_fail(DPB_NOT_DECIDED,
                        "%s%s%s is %.4g [%.4g .. %.4g]: %zu repeats do not decide whether it is %s "
                        "%.4g",
                        field, at, key, exp(estimate.mean), low, high, n,
                        most ? "at most" : "at least", limit);
    return dpb_fail(DPB_NOT_DECIDED,
                    "%s%s%s has no interval: %s; take more steps, iterations or repeats", field, at,
                    key, n < 2 ? "it has fewer than 2 repeats" : "a repeat has no value");
}

/* The one that counts, by the order of exit codes: 2, 4, 6. */
static dpb_status first_of(dpb_status a, dpb_status b)
{
    static const dpb_status order[] = {DPB_USAGE, DPB_REGRESSION, DPB_NOT_DECIDED};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (a == order[i] || b == order[i])
            return order[i];
    return DPB_OK;
}

dpb_status dpb_demands_judge(const json_t *demands, const json_t *document)
{
    dpb_status status = DPB_OK;
    dpb_each_item(demands, i, demand) {
        size_t n = 0, n_held = 0;
        dpb_each_item(json_object_get(document, "series"), k, row) {
            if (!matches(demand, row))
                continue;
            dpb_first_error_clear(); /* of the row before: each has its message */
            const dpb_status judged = judge_row(demand, row);
            n++;
            n_held += judged == DPB_OK;
            status = first_of(status, judged);
        }
        dpb_first_error_clear();
        if (n == 0)
            status = first_of(status, refuse(demand, document));
        else if (n_held == n)
            dpb_log(DPB_LOG_INFO, "%s %s holds in %zu row%s", dpb_json_text(demand, "option", "?"),
                    dpb_json_text(demand, "text", "?"), n, n == 1 ? "" : "s");
    }
    return status;
}
