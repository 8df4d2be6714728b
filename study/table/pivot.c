/* pivot.c - see pivot.h. */
#include "study/table/pivot.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/each.h"
#include "base/log.h"
#include "base/text.h"
#include "study/table/forms.h"
#include "base/json.h"

/* The table as it grows. A line is an array of texts, as long as its last one asks. */
struct table {
    json_t *heads; /* @owned: an array of texts */
    json_t *lines; /* @owned: by the texts of their first columns; in order */
    enum dpb_pivot_form form;
};

/* ---- keys ---------------------------------------------------------------------------------- */

/* @owned: an array of texts. */
static json_t *keys_of(const char *list)
{
    json_t *keys = json_array();
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        while (length > 0 && at[length - 1] == ' ')
            length--;
        json_array_append_new(keys, json_stringn(at, length));
    }
    return keys;
}

static const json_t *value_of(const json_t *row, const char *key)
{
    static const char cell[] = "cell."; /* as CSV has it */
    const size_t skipped = dpb_begins_with(key, cell) ? sizeof cell - 1 : 0;
    const json_t *setting = json_object_get(json_object_get(row, "cell"), key + skipped);
    return setting ? setting : dpb_json_at(row, key);
}

static dpb_status check_keys(const json_t *rows, const json_t *keys)
{
    dpb_each_item(keys, i, key) {
        bool found = false;
        if (dpb_json_find(keys, "", key) != key)
            return dpb_fail(DPB_USAGE, "'%s' stands twice in one list: name it once",
                            json_string_value(key));
        dpb_each_item(rows, k, row) {
            const json_t *value = value_of(row, json_string_value(key));
            found = found || (value && !json_is_object(value) && !json_is_array(value));
        }
        if (!found)
            return dpb_fail(DPB_USAGE,
                            "no row has '%s': take an axis, or a field of the first line of "
                            "`dpbench report --csv`",
                            json_string_value(key));
    }
    return DPB_OK;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* `exact`: other numbers have other texts. */
static json_t *text_of(const struct table *table, const json_t *row, const char *key, bool exact)
{
    char text[64];
    const json_t *value = value_of(row, key);
    if (json_is_string(value))
        return json_string(json_string_value(value));
    if (json_is_boolean(value))
        return json_string(json_is_true(value) ? "yes" : "no");
    if (!json_is_number(value))
        return json_string("");
    const double number = json_number_value(value);
    snprintf(text, sizeof text,
             table->form == DPB_PIVOT_CSV ? "%.17g"
             : fabs(number) < 1e6         ? "%.6g"
                                          : "%.0f",
             number);
    if (exact && strtod(text, NULL) != number)
        snprintf(text, sizeof text, "%.17g", number);
    return json_string(text);
}

/* The column of this name behind the first `n_fixed`; it is added where it is missing. */
static size_t column_of(const struct table *table, size_t n_fixed, const char *name)
{
    dpb_each_item(table->heads, i, head)
        if (i >= n_fixed && strcmp(json_string_value(head), name) == 0)
            return i;
    json_array_append_new(table->heads, json_string(name));
    return json_array_size(table->heads) - 1;
}

/* The line of a row; it is added where it is missing. */
static json_t *line_of(const struct table *table, const json_t *row, const json_t *keys)
{
    json_t *line = json_array();
    dpb_each_item(keys, i, key)
        json_array_append_new(line, text_of(table, row, json_string_value(key), true));
    char *name = json_dumps(line, JSON_COMPACT);
    if (name && !json_object_get(table->lines, name))
        json_object_set(table->lines, name, line);
    json_decref(line);
    line = name ? json_object_get(table->lines, name) : NULL;
    free(name);
    return line;
}

static dpb_status put(json_t *line, size_t column, json_t *text, const char *name)
{
    while (json_array_size(line) <= column)
        json_array_append_new(line, json_null());
    if (!json_is_null(json_array_get(line, column))) {
        json_decref(text);
        return dpb_fail(DPB_USAGE,
                        "two rows have the same cell, in column '%s' of line '%s': add the setting "
                        "that tells them apart to --rows",
                        name, dpb_json_text(json_array_get(line, 0), "", ""));
    }
    return dpb_allocated(json_array_set_new(line, column, text) == 0);
}

static dpb_status add_row(const struct table *table, const json_t *row,
                          const struct dpb_pivot *pivot, const json_t *keys, const json_t *values)
{
    json_t *line = line_of(table, row, keys);
    dpb_status status = dpb_allocated(line);
    dpb_each_item(values, i, item) {
        const char *value = json_string_value(item);
        json_t *of = pivot->columns ? text_of(table, row, pivot->columns, true) : NULL;
        json_t *name = !of ? json_string(value)
                       : json_array_size(values) == 1
                           ? json_incref(of)
                           : json_sprintf("%s %s", json_string_value(of), value);
        const char *state = dpb_json_text(row, "status", "failed"); /* "interrupted", "not timed" */
        const bool has_none = strcmp(state, "ok") != 0 && json_is_null(value_of(row, value));
        DPB_THEN(status, dpb_allocated(name));
        if (status == DPB_OK) {
            const char *head = json_string_value(name);
            status = put(line, column_of(table, json_array_size(keys), head),
                         has_none ? json_string(state) : text_of(table, row, value, false), head);
        }
        json_decref(name);
        json_decref(of);
    }
    return status;
}

/* ---- its forms ----------------------------------------------------------------------------- */

static int width_of(const struct table *table, size_t column)
{
    int width = (int)strlen(dpb_json_text(json_array_get(table->heads, column), "", ""));
    dpb_each_member(table->lines, name, line) {
        const int here = (int)strlen(dpb_json_text(json_array_get(line, column), "", ""));
        width = here > width ? here : width;
    }
    return width;
}

static void print_line(const struct table *table, const json_t *line, size_t n_fixed, FILE *out)
{
    const size_t n = json_array_size(table->heads);
    for (size_t c = 0; c < n; c++) {
        const char *text = dpb_json_text(json_array_get(line, c), "", "");
        if (table->form == DPB_PIVOT_MARKDOWN) {
            dpb_form_cell(text, out);
        } else if (table->form == DPB_PIVOT_CSV) {
            fputs(c > 0 ? "," : "", out);
            dpb_form_field(text, out);
        } else {
            const int width = width_of(table, c);
            fprintf(out, "%s%*s", c > 0 ? "  " : "", c < n_fixed ? -width : width, text);
        }
    }
    fputs(table->form == DPB_PIVOT_MARKDOWN ? "|\n" : "\n", out);
}

static void print_table(const struct table *table, size_t n_fixed, FILE *out)
{
    print_line(table, table->heads, n_fixed, out);
    for (size_t c = 0; table->form == DPB_PIVOT_MARKDOWN && c < json_array_size(table->heads); c++)
        fputs(c < n_fixed ? "|---" : "|---:", out);
    fputs(table->form == DPB_PIVOT_MARKDOWN ? "|\n" : "", out);
    dpb_each_member(table->lines, name, line)
        print_line(table, line, n_fixed, out);
}

dpb_status dpb_pivot_print(const json_t *document, const struct dpb_pivot *pivot,
                           enum dpb_pivot_form form, FILE *out)
{
    struct table table = {.lines = json_object(), .form = form};
    json_t *rows = json_object_get(document, "rows"), *keys = keys_of(pivot->rows),
           *values = keys_of(pivot->values ? pivot->values : "samples_per_s.median"),
           *columns = pivot->columns ? json_pack("[s]", pivot->columns) : json_array();
    dpb_status status = check_keys(rows, keys);
    DPB_THEN(status, check_keys(rows, columns));
    DPB_THEN(status, check_keys(rows, values));
    table.heads = json_copy(keys);
    dpb_each_item(rows, i, row)
        DPB_THEN(status, add_row(&table, row, pivot, keys, values));
    if (status == DPB_OK)
        print_table(&table, json_array_size(keys), out);
    json_decref(keys);
    json_decref(values);
    json_decref(columns);
    json_decref(table.heads);
    json_decref(table.lines);
    return status;
}
