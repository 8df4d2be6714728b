/*
 * options.c - turns rows of option tables into values, refusals, help and the configuration of a
 * result. A row says everything about its option.
 */
#include "base/options.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"

enum { PLACE_BYTES = 256 };

/* A value of any type, in base units. */
union value {
    bool truth;
    int64_t integer; /* DPB_OPT_INT, DPB_OPT_TIME */
    double real;
    uint64_t size;
    const char *string;
    int choice;
};

enum { NUMBER_BYTES = 48, LIST_BYTES = 512 };

/* ---- text to value ------------------------------------------------------------------------- */

static dpb_parsed parse_choice(const char *const *choices, const char *text, int *choice)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(choices[i], text) == 0) {
            *choice = i;
            return DPB_PARSED;
        }
    return DPB_PARSED_MALFORMED;
}

static dpb_parsed parse_time(const struct dpb_option *row, const char *text, bool base_units,
                             int64_t *ns)
{
    if (base_units)
        return dpb_parse_seconds(text, ns);
    uint64_t value = 0;
    dpb_parsed parsed = dpb_parse_quantity(text, dpb_time_units, row->unit, &value);
    *ns = (int64_t)value;
    return parsed;
}

/* Of a size, a rate or a time; NULL: the type has none. */
static const struct dpb_unit *units_of(const struct dpb_option *row)
{
    const bool is_rate = row->unit && strcmp(row->unit, "bytes/s") == 0;
    return row->type == DPB_OPT_SIZE   ? is_rate ? dpb_rate_units : dpb_size_units
           : row->type == DPB_OPT_TIME ? dpb_time_units
                                       : NULL;
}

static dpb_parsed parse_value(const struct dpb_option *row, const char *text, bool base_units,
                              union value *value)
{
    memset(value, 0, sizeof *value);
    switch (row->type) {
    case DPB_OPT_BOOL:
        return dpb_parse_bool(text, &value->truth) ? DPB_PARSED : DPB_PARSED_MALFORMED;
    case DPB_OPT_INT:
        return dpb_parse_int(text, &value->integer);
    case DPB_OPT_REAL:
        return dpb_parse_real(text, &value->real);
    case DPB_OPT_SIZE:
        return dpb_parse_quantity(text, units_of(row), units_of(row)->name, &value->size);
    case DPB_OPT_TIME:
        return parse_time(row, text, base_units, &value->integer);
    case DPB_OPT_STRING:
        value->string = text;
        return DPB_PARSED;
    case DPB_OPT_CHOICE:
        return parse_choice(row->choices, text, &value->choice);
    }
    assert(false); /* unreachable: dpb_plugin_check refuses other types */
    return DPB_PARSED_MALFORMED;
}

static bool in_range(const struct dpb_option *row, const union value *value)
{
    double number;
    if (row->type == DPB_OPT_INT || row->type == DPB_OPT_TIME)
        number = (double)value->integer;
    else if (row->type == DPB_OPT_SIZE)
        number = (double)value->size;
    else if (row->type == DPB_OPT_REAL)
        number = value->real;
    else
        return true;
    /* Equal bounds: none. */
    return !(row->min < row->max) || (number >= row->min && number <= row->max);
}

size_t dpb_option_bytes(dpb_option_type type)
{
    static const size_t size[] = {
        [DPB_OPT_BOOL] = sizeof(bool),    [DPB_OPT_INT] = sizeof(int64_t),
        [DPB_OPT_REAL] = sizeof(double),  [DPB_OPT_SIZE] = sizeof(uint64_t),
        [DPB_OPT_TIME] = sizeof(int64_t), [DPB_OPT_STRING] = sizeof(const char *),
        [DPB_OPT_CHOICE] = sizeof(int)};
    return (size_t)type < sizeof size / sizeof size[0] ? size[type] : 0;
}

static void store_value(const struct dpb_option *row, const union value *value, void *values)
{
    memcpy((char *)values + row->offset, value, dpb_option_bytes(row->type));
}

/* ---- value to text ------------------------------------------------------------------------- */

/* A bound in the largest unit that divides it, as a user would write it. */
static void print_bound(const struct dpb_option *row, double bound, char text[NUMBER_BYTES])
{
    const struct dpb_unit *units = units_of(row);
    const struct dpb_unit *best = units;
    for (const struct dpb_unit *unit = units; unit && unit->name && bound != 0; unit++)
        if (fmod(bound, (double)unit->factor) == 0)
            best = unit;
    if (best)
        snprintf(text, NUMBER_BYTES, "%.15g %s", bound / (double)best->factor, best->name);
    else
        snprintf(text, NUMBER_BYTES, "%.15g", bound);
}

/* "1 to 512", "at least 1", "at most 1", or "" without bounds. */
static void print_range(const struct dpb_option *row, char text[LIST_BYTES])
{
    /* A bound beyond the type's range is no bound. */
    const double limit = row->type == DPB_OPT_REAL ? 1e300 : 0x1p62;
    bool least = row->min < row->max && row->min > -limit;
    bool most = row->min < row->max && row->max < limit;
    char min[NUMBER_BYTES], max[NUMBER_BYTES];
    print_bound(row, row->min, min);
    print_bound(row, row->max, max);
    *text = '\0';
    if (least && most)
        snprintf(text, LIST_BYTES, "%s to %s", min, max);
    else if (least)
        snprintf(text, LIST_BYTES, "at least %s", min);
    else if (most)
        snprintf(text, LIST_BYTES, "at most %s", max);
}

static void print_list(const char *const *words, const char *separator, char text[LIST_BYTES])
{
    struct dpb_text list = dpb_text_in(text, LIST_BYTES);
    for (size_t i = 0; words[i]; i++)
        dpb_text_item(&list, separator, "%s", words[i]);
}

/* ---- refusals ------------------------------------------------------------------------------ */

struct place {
    const char *origin, *section;
    const struct dpb_option *row;
    const char *text;
};

/* Refuses a value: its place, the value, then what `format` says of it. */
DPB_PRINTF(2, 3) static dpb_status refuse(const struct place *at, const char *format, ...)
{
    char why[DPB_LOG_TEXT];
    DPB_PRINT_ARGUMENTS(why, sizeof why, format);
    return dpb_fail(DPB_USAGE, "%s: %s.%s: '%s'%s", at->origin, at->section, at->row->name,
                    at->text, why);
}

static dpb_status refuse_malformed(const struct place *at)
{
    static const char *const wanted[] = {[DPB_OPT_BOOL] = "yes or no",
                                         [DPB_OPT_INT] = "a number",
                                         [DPB_OPT_REAL] = "a number",
                                         [DPB_OPT_SIZE] = "a size, such as 64 KiB",
                                         [DPB_OPT_TIME] = "a time, such as 2 s"};
    double real;
    if (at->row->type == DPB_OPT_INT && dpb_parse_real(at->text, &real) == DPB_PARSED)
        return refuse(at, " is not a whole number");
    if (at->row->type != DPB_OPT_CHOICE)
        return refuse(at, " is not %s", wanted[at->row->type]);
    char choices[LIST_BYTES];
    print_list(at->row->choices, ", ", choices);
    const char *hint = dpb_did_you_mean(at->text, at->row->choices);
    return refuse(at, " is not one of %s%s%s%s", choices, hint ? "; did you mean '" : "",
                  hint ? hint : "", hint ? "'?" : "");
}

static dpb_status refuse_range(const struct place *at)
{
    char range[LIST_BYTES];
    print_range(at->row, range);
    if (*range == '\0')
        return refuse(at, " is too large");
    return refuse(at, " is out of range: %s", range);
}

static dpb_status refuse_value(const struct place *at, dpb_parsed why)
{
    char units[LIST_BYTES] = "";
    if (units_of(at->row))
        dpb_unit_names(units_of(at->row), units, sizeof units);
    switch (why) {
    case DPB_PARSED_OVERFLOW:
        return refuse_range(at);
    case DPB_PARSED_UNDERFLOW:
        return refuse(at, " is too small: it would be 0");
    case DPB_PARSED_NO_UNIT:
        return refuse(at, " has no unit; units are %s", units);
    case DPB_PARSED_BAD_UNIT:
        return refuse(at, " has an unknown unit; units are %s", units);
    case DPB_PARSED_NOT_INTEGRAL:
        return refuse(at, " is not a whole number of %s",
                      at->row->type == DPB_OPT_SIZE ? "bytes" : "nanoseconds");
    default:
        return refuse_malformed(at);
    }
}

/* What a shell would have made of a path; nobody means a directory of the name `~` or `"x"`. */
static dpb_status check_path(const struct place *at)
{
    const char *text = at->text, *unit = at->row->unit;
    const size_t length = strlen(text);
    const char *home = getenv("HOME");
    if (!unit || !dpb_text_lists("file,directory,path", ",", unit, strlen(unit)))
        return DPB_OK;
    if (length > 1 && (text[0] == '"' || text[0] == '\'') && text[length - 1] == text[0])
        return dpb_fail(DPB_USAGE,
                        "%s: %s.%s: the quotes of %s would be part of its name; write "
                        "%.*s, with its blanks",
                        at->origin, at->section, at->row->name, text, (int)length - 2, text + 1);
    if (text[0] == '~' && (text[1] == '/' || text[1] == '\0'))
        return refuse(at, ": ~ is a shell's word; write %s%s", home ? home : "the home directory",
                      text + 1);
    if (strchr(text, '$'))
        return refuse(at, ": variables are a shell's; write their values");
    return DPB_OK;
}

/* For a message about `section`: "for" its plugins, or "in" it. */
static void name_place(const struct dpb_option_table *tables, size_t n_tables, const char *section,
                       char place[PLACE_BYTES])
{
    struct dpb_text text = dpb_text_in(place, PLACE_BYTES);
    for (size_t t = 0; t < n_tables; t++)
        if (strcmp(tables[t].section, section) == 0 && tables[t].owner)
            dpb_text_add(&text, "%s %s", text.length > 0 ? " and" : "for", tables[t].owner);
    if (text.length == 0)
        dpb_text_add(&text, "in [%s]", section);
}

static dpb_status refuse_section(const struct dpb_option_table *tables, size_t n_tables,
                                 const struct dpb_setting *setting)
{
    struct dpb_nearest nearest = {.word = setting->section};
    for (size_t t = 0; t < n_tables; t++)
        dpb_nearest_offer(&nearest, tables[t].section);
    return dpb_fail(DPB_USAGE, "%s: unknown section '%s'%s%s%s", setting->origin, setting->section,
                    nearest.found ? "; did you mean '" : "", nearest.found ? nearest.found : "",
                    nearest.found ? "'?" : "; `dpbench help` lists the sections");
}

static dpb_status refuse_key(const struct dpb_option_table *tables, size_t n_tables,
                             const struct dpb_setting *setting)
{
    struct dpb_nearest nearest = {.word = setting->key};
    const char *elsewhere = NULL;
    for (size_t t = 0; t < n_tables; t++)
        for (const struct dpb_option *row = tables[t].rows; row && row->name; row++) {
            if (strcmp(tables[t].section, setting->section) == 0)
                dpb_nearest_offer(&nearest, row->name);
            else if (strcmp(row->name, setting->key) == 0)
                elsewhere = tables[t].section;
        }
    char place[PLACE_BYTES];
    name_place(tables, n_tables, setting->section, place);
    if (nearest.found)
        return dpb_fail(DPB_USAGE, "%s: unknown option '%s' %s; did you mean '%s'?",
                        setting->origin, setting->key, place, nearest.found);
    if (elsewhere)
        return dpb_fail(DPB_USAGE, "%s: unknown option '%s' %s; it belongs to [%s]",
                        setting->origin, setting->key, place, elsewhere);
    return dpb_fail(DPB_USAGE, "%s: unknown option '%s' %s; `dpbench help` lists the options",
                    setting->origin, setting->key, place);
}

/* ---- tables -------------------------------------------------------------------------------- */

const struct dpb_option *dpb_options_find(const struct dpb_option *rows, const char *key)
{
    for (const struct dpb_option *row = rows; row && row->name; row++)
        if (strcmp(row->name, key) == 0)
            return row;
    return NULL;
}

static dpb_status check_known(const struct dpb_option_table *tables, size_t n_tables,
                              const struct dpb_setting *setting)
{
    bool section_known = false;
    for (size_t t = 0; t < n_tables; t++) {
        if (strcmp(tables[t].section, setting->section) != 0)
            continue;
        section_known = true;
        if (dpb_options_find(tables[t].rows, setting->key))
            return DPB_OK;
    }
    return section_known ? refuse_key(tables, n_tables, setting)
                         : refuse_section(tables, n_tables, setting);
}

/* A plugin's row must not have the key of core's, nor a codec's that of a strategy: one setting
 * would mean two things. */
dpb_status dpb_options_differ(const struct dpb_option_table *tables, size_t n_tables)
{
    for (size_t t = 1; t < n_tables; t++)
        for (const struct dpb_option *row = tables[t].rows; row && row->name; row++)
            for (size_t i = 0; i < t; i++)
                if (strcmp(tables[i].section, tables[t].section) == 0 &&
                    dpb_options_find(tables[i].rows, row->name))
                    return dpb_fail(DPB_UNSUPPORTED,
                                    "option '%s' of %s: %s has a %s.%s, too; rename one of them",
                                    row->name, tables[t].owner,
                                    tables[i].owner ? tables[i].owner : "dpbench itself",
                                    tables[t].section, row->name);
    return DPB_OK;
}

static dpb_status parse_row(const struct dpb_option_table *table, const struct dpb_option *row,
                            const struct dpb_config *config)
{
    const struct dpb_setting *setting = dpb_config_get(config, table->section, row->name);
    union value value;
    memset(&value, 0, sizeof value);
    if (!setting && !row->def) {
        if (row->type == DPB_OPT_STRING)
            value.string = "";
        store_value(row, &value, table->values);
        return DPB_OK;
    }
    struct place at = {setting ? setting->origin : "default", table->section, row,
                       setting ? setting->value : row->def};
    dpb_parsed parsed = parse_value(row, at.text, setting && setting->base_units, &value);
    if (parsed != DPB_PARSED)
        return refuse_value(&at, parsed);
    if (!in_range(row, &value))
        return refuse_range(&at);
    if (setting && row->type == DPB_OPT_STRING)
        DPB_TRY(check_path(&at));
    store_value(row, &value, table->values);
    return DPB_OK;
}

dpb_status dpb_options_parse_known(const struct dpb_option_table *table,
                                   const struct dpb_config *config)
{
    for (const struct dpb_option *row = table->rows; row && row->name; row++)
        DPB_TRY(parse_row(table, row, config));
    return DPB_OK;
}

dpb_status dpb_options_parse(const struct dpb_option_table *tables, size_t n_tables,
                             const struct dpb_config *config)
{
    DPB_TRY(dpb_options_differ(tables, n_tables));
    for (size_t i = 0; i < config->n_settings; i++)
        DPB_TRY(check_known(tables, n_tables, &config->settings[i]));
    for (size_t t = 0; t < n_tables; t++)
        DPB_TRY(dpb_options_parse_known(&tables[t], config));
    return DPB_OK;
}

/* ---- results and help ---------------------------------------------------------------------- */

static json_t *value_to_json(const struct dpb_option *row, const struct dpb_setting *setting)
{
    const char *text = setting ? setting->value : row->def;
    union value value;
    if (!text)
        return json_null();
    if (parse_value(row, text, setting && setting->base_units, &value) != DPB_PARSED)
        return json_string(text); /* refused by dpb_options_parse; still shown as it was given */
    switch (row->type) {
    case DPB_OPT_BOOL:
        return json_boolean(value.truth);
    case DPB_OPT_INT:
        return json_integer(value.integer);
    case DPB_OPT_REAL:
        return json_real(value.real);
    case DPB_OPT_SIZE:
        return json_integer((json_int_t)value.size);
    case DPB_OPT_TIME:
        return json_real((double)value.integer / 1e9);
    default:
        return json_string(text);
    }
}

dpb_status dpb_option_value(const struct dpb_option *row, const struct dpb_setting *setting,
                            json_t **value)
{
    union value parsed;
    const struct place at = {setting->origin, setting->section, row, setting->value};
    const dpb_parsed why = parse_value(row, at.text, setting->base_units, &parsed);
    if (why != DPB_PARSED)
        return at.origin ? refuse_value(&at, why) : DPB_USAGE;
    *value = value_to_json(row, setting);
    return dpb_allocated(*value);
}

json_t *dpb_options_effective(const struct dpb_option_table *tables, size_t n_tables,
                              const struct dpb_config *config)
{
    json_t *root = json_object();
    for (size_t t = 0; t < n_tables; t++) {
        const char *name = tables[t].section;
        if (!json_object_get(root, name))
            json_object_set_new(root, name, json_object());
        json_t *section = json_object_get(root, name);
        for (const struct dpb_option *row = tables[t].rows; row && row->name; row++) {
            const struct dpb_setting *setting = dpb_config_get(config, name, row->name);
            json_t *entry = json_pack("{s:o,s:s}", "value", value_to_json(row, setting), "origin",
                                      setting ? setting->origin : "default");
            if (json_object_set_new(section, row->name, entry) != 0)
                goto err_root;
        }
    }
    if (root)
        return root;

err_root:
    json_decref(root);
    dpb_fail(DPB_NO_MEMORY, "out of memory for the configuration");
    return NULL;
}

static void print_type(const struct dpb_option *row, char text[LIST_BYTES])
{
    static const char *const name[] = {
        [DPB_OPT_BOOL] = "yes|no", [DPB_OPT_INT] = "integer", [DPB_OPT_REAL] = "number",
        [DPB_OPT_SIZE] = "size",   [DPB_OPT_TIME] = "time",   [DPB_OPT_STRING] = "text"};
    if (row->type == DPB_OPT_CHOICE)
        print_list(row->choices, "|", text);
    else
        snprintf(text, LIST_BYTES, "%s%s%s%s", name[row->type], row->unit ? " (" : "",
                 row->unit ? row->unit : "", row->unit ? ")" : "");
}

void dpb_options_print(const char *section, const struct dpb_option *rows, FILE *out)
{
    for (const struct dpb_option *row = rows; row && row->name; row++) {
        char type[LIST_BYTES], range[LIST_BYTES];
        print_type(row, type);
        print_range(row, range);
        fprintf(out, "  %s.%s = %s", section, row->name, type);
        if (*range)
            fprintf(out, ", %s", range);
        if (row->def && *row->def)
            fprintf(out, "; default %s", row->def);
        if (row->needs)
            fprintf(out, "; needs %s", row->needs);
        fprintf(out, "\n      %s\n", row->help ? row->help : "");
    }
}
