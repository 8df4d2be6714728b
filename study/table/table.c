/* table.c - see table.h. */
#include "study/table/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

static void find_group(const json_t *row, char group[DPB_TABLE_GROUP])
{
    struct dpb_text text = dpb_text_in(group, DPB_TABLE_GROUP);
    dpb_each_member(json_object_get(row, "cell"), key, value)
        if (strcmp(key, "comm.name") != 0 && strcmp(key, "run.workers") != 0)
            dpb_text_item(&text, ", ", "%s = %s", key, dpb_json_text(value, "", "?"));
}

bool dpb_table_make(const json_t *document, const char *const *titles, size_t n_columns,
                    dpb_table_fill *fill, struct dpb_table *table)
{
    const json_t *rows = json_object_get(document, "rows");
    const size_t n = json_array_size(rows);
    bool *taken = calloc(n + 1, sizeof *taken);
    *table = (struct dpb_table){.titles = titles, .n_columns = n_columns};
    table->lines = calloc(n + 1, sizeof *table->lines);
    const bool made = taken && table->lines;
    for (size_t i = 0; made && i < n; i++) {
        char group[DPB_TABLE_GROUP];
        find_group(json_array_get(rows, i), group);
        for (size_t k = i; k < n; k++) {
            struct dpb_table_line *line = &table->lines[table->n];
            if (taken[k])
                continue;
            line->row = json_array_get(rows, k);
            find_group(line->row, line->group);
            if (strcmp(line->group, group) != 0)
                continue;
            taken[k] = true;
            table->n += fill(line);
        }
    }
    free(taken);
    return made;
}

void dpb_table_release(struct dpb_table *table)
{
    free(table->lines);
}

size_t dpb_table_n_shown(const struct dpb_table *table)
{
    size_t n = 0;
    for (size_t c = 0; c < table->n_columns; c++)
        n += table->shown[c];
    return n;
}

/* ---- for people ---------------------------------------------------------------------------- */

/* The widths of the columns, 0: left out; returns that of a line. */
static size_t find_widths(const struct dpb_table *table, size_t width[DPB_TABLE_COLUMNS])
{
    size_t total = 0;
    for (size_t c = 0; c < table->n_columns; c++) {
        width[c] = table->shown[c] ? strlen(table->titles[c]) : 0;
        for (size_t i = 0; i < table->n && table->shown[c]; i++)
            if (!table->lines[i].failed && strlen(table->lines[i].text[c]) > width[c])
                width[c] = strlen(table->lines[i].text[c]);
        total += width[c] + (c > 0 && width[c] > 0 ? 2 : 0);
    }
    return total;
}

size_t dpb_table_width(const struct dpb_table *table)
{
    size_t width[DPB_TABLE_COLUMNS];
    return find_widths(table, width);
}

static void print_cell(const char *text, size_t column, size_t width, int gap, FILE *out)
{
    const bool left = column < DPB_TABLE_WORKERS;
    if (width > 0)
        fprintf(out, "%*s%*s", column > 0 ? gap : 0, "", left ? -(int)width : (int)width, text);
}

static void print_failed(const struct dpb_table_line *line, size_t width, FILE *out)
{
    char text[DPB_TABLE_FAILURE + 512], failure[DPB_TABLE_FAILURE];
    dpb_table_failure(line->row, failure, sizeof failure);
    snprintf(text, sizeof text, "%-*s  %s  %s", (int)width, line->text[DPB_TABLE_STRATEGY],
             line->text[DPB_TABLE_WORKERS], failure);
    if (strlen(text) > DPB_TABLE_WIDTH)
        memcpy(text + DPB_TABLE_WIDTH - 3, "...", 4);
    fprintf(out, "%s\n", text);
}

void dpb_table_print(const struct dpb_table *table, FILE *out)
{
    size_t width[DPB_TABLE_COLUMNS];
    const char *group = "";
    const int gap = find_widths(table, width) > DPB_TABLE_WIDTH ? 1 : 2;
    for (size_t c = 0; c < table->n_columns; c++)
        print_cell(table->titles[c], c, width[c], gap, out);
    fputc('\n', out);
    for (size_t i = 0; i < table->n; i++) {
        const struct dpb_table_line *line = &table->lines[i];
        if (strcmp(line->group, group) != 0)
            fprintf(out, "%s:\n", line->group);
        group = line->group;
        if (line->failed) {
            print_failed(line, width[DPB_TABLE_STRATEGY], out);
            continue;
        }
        for (size_t c = 0; c < table->n_columns; c++)
            print_cell(line->text[c], c, width[c], gap, out);
        fputc('\n', out);
    }
}

void dpb_table_failure(const json_t *row, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s: %s", dpb_json_text(row, "status", "failed"),
             dpb_json_text(row, "error", "no run of it ended"));
}

void dpb_table_failed_cell(const struct dpb_table_line *line, char text[DPB_TABLE_FAILURE])
{
    const char *workers = line->text[DPB_TABLE_WORKERS]; /* "-": not known */
    const int n = snprintf(text, DPB_TABLE_FAILURE, "%s worker%s, ", workers,
                           strcmp(workers, "1") == 0 ? "" : "s");
    dpb_table_failure(line->row, text + n, DPB_TABLE_FAILURE - (size_t)n);
}
