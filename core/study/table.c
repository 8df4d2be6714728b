/* table.c - see table.h. */
#include "study/table.h"

#include <stdlib.h>
#include <string.h>

#include "study/json.h"
#include "study/sweep.h"

bool dpb_table_make(const json_t *document, const char *const *titles, size_t n_columns,
                    dpb_table_fill *fill, struct dpb_table *table)
{
    const json_t *rows = json_object_get(document, "rows");
    const json_t **ordered = calloc(json_array_size(rows) + 1, sizeof *ordered);
    *table = (struct dpb_table){.titles = titles, .n_columns = n_columns};
    table->lines = calloc(json_array_size(rows) + 1, sizeof *table->lines);
    const bool made = ordered && table->lines;
    const size_t n = made ? dpb_sweep_order_rows(rows, ordered) : 0;
    for (size_t i = 0; i < n; i++) {
        struct dpb_table_line *line = &table->lines[table->n];
        line->row = ordered[i];
        table->n += fill(line);
    }
    free(ordered);
    return made;
}

void dpb_table_release(struct dpb_table *table)
{
    free(table->lines);
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
    text[strcspn(text, "\n")] = '\0';
    if (strlen(text) > DPB_TABLE_WIDTH)
        memcpy(text + DPB_TABLE_WIDTH - 3, "...", 4);
    fprintf(out, "%s\n", text);
}

void dpb_table_print(const struct dpb_table *table, FILE *out)
{
    size_t width[DPB_TABLE_COLUMNS];
    char group[DPB_SWEEP_GROUP], before[DPB_SWEEP_GROUP] = "";
    const int gap = find_widths(table, width) > DPB_TABLE_WIDTH ? 1 : 2;
    for (size_t c = 0; c < table->n_columns; c++)
        print_cell(table->titles[c], c, width[c], gap, out);
    fputc('\n', out);
    for (size_t i = 0; i < table->n; i++) {
        const struct dpb_table_line *line = &table->lines[i];
        dpb_sweep_group(line->row, group, sizeof group);
        if (strcmp(group, before) != 0)
            fprintf(out, "%s:\n", group);
        memcpy(before, group, sizeof before);
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

/* ---- for programs -------------------------------------------------------------------------- */

json_t *dpb_table_to_json(const struct dpb_table *table)
{
    json_t *columns = json_array(), *lines = json_array();
    for (size_t c = 0; c < table->n_columns; c++)
        if (table->shown[c])
            json_array_append_new(columns, json_string(table->titles[c]));
    for (size_t i = 0; i < table->n; i++) {
        const struct dpb_table_line *line = &table->lines[i];
        char group[DPB_SWEEP_GROUP];
        json_t *cells = json_array();
        dpb_sweep_group(line->row, group, sizeof group);
        for (size_t c = 0; c < table->n_columns; c++)
            if (table->shown[c])
                json_array_append_new(cells, dpb_json_string(line->text[c]));
        json_array_append_new(lines, json_pack("{s:o, s:O, s:o, s:b}",           //
                                               "group", dpb_json_string(group),  //
                                               "row", line->row, "cells", cells, //
                                               "failed", line->failed));
    }
    return json_pack("{s:o, s:o}", "columns", columns, "lines", lines);
}
