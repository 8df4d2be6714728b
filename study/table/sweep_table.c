/* sweep_table.c - see sweep_table.h. */
#include "study/table/sweep_table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "dpbench/host.h"
#include "study/document/learning.h"
#include "study/document/rows.h"

enum { CELL = DPB_TABLE_CELL };

static const char *const titles[DPB_SWEEP_COLUMNS] = {
    "strategy", "label", "workers",  "samples/s", "interval", "n",
    "speedup",  "publ.", "effic.",   "exposed",   "wait",     "of fp32",
    "coding",   "loss",  "accuracy", "verified",  "emulated"};
_Static_assert((int)DPB_SWEEP_COLUMNS <= (int)DPB_TABLE_COLUMNS,
               "a line has room for every column");

DPB_PRINTF(3, 4) static void print_if(char *text, double value, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (isfinite(value))
        vsnprintf(text, CELL, format, list);
    else
        snprintf(text, CELL, "-");
    va_end(list);
}

static void print_percent(char *text, const json_t *row, const char *path, int decimals)
{
    const double share = dpb_json_number(row, path);
    print_if(text, share, "%.*f %%", decimals, 100 * share);
}

/* The mark of a row for which the field is true; else nothing. */
static const char *mark(const json_t *row, const char *field, const char *text)
{
    return json_is_true(json_object_get(row, field)) ? text : "";
}

/* Rows of older documents have no verdict. */
static const char *verified_text(const json_t *row)
{
    const char *verdict = dpb_json_text(row, "verdict", NULL);
    if (verdict && strcmp(verdict, "yes") != 0)
        return verdict;
    const json_t *verified = json_object_get(row, "verified");
    if (json_is_null(verified))
        return "n/a";
    if (!json_is_true(verified))
        return "NO";
    return dpb_json_true(row, "proved") ? "proved" : "yes";
}

static void print_interval(char *text, const json_t *row)
{
    const double low = dpb_json_number(row, "samples_per_s.low"),
                 high = dpb_json_number(row, "samples_per_s.high");
    const int decimals = high < 100 || (high < 1000 && high - low < 10) ? 1 : 0;
    char interval[34] = "-";
    if (isfinite(low))
        snprintf(interval, sizeof interval, "%.*f..%.*f", decimals, low, decimals, high);
    snprintf(text, CELL, "%s%s%s%s%s", interval, mark(row, "too_short", "<"),
             dpb_json_true(row, "steady") ? "" : mark(row, "gated", "~"),
             mark(row, "disturbed", "?"), mark(row, "throttled", "^"));
}

size_t dpb_sweep_measured(const json_t *row, size_t *planned)
{
    const json_t *rates = json_object_get(row, "rates");
    size_t n = 0;
    *planned = json_array_size(rates);
    for (size_t i = 0; i < *planned; i++)
        n += json_is_number(json_array_get(rates, i));
    return n;
}

/* "V100, published"; "-" for a device that computes. */
static void print_emulated(char *text, const json_t *row)
{
    const json_t *emulated = json_object_get(row, "emulated");
    const bool is_known = json_is_object(emulated);
    snprintf(text, CELL, is_known ? "%.24s, %.12s%s" : "-",
             dpb_json_text(emulated, "accelerator", "?"), dpb_json_text(emulated, "kind", "?"),
             mark(row, "emulation_late", " LATE"));
}

static bool fill_line(struct dpb_table_line *line)
{
    const json_t *row = line->row;
    const double workers = dpb_json_number(row, "workers"),
                 rate = dpb_json_number(row, "samples_per_s.median"),
                 speedup = dpb_json_number(row, "speedup"),
                 published = dpb_json_number(row, "published_speedup"),
                 loss = dpb_json_number(row, "loss"),
                 encode_ns = dpb_json_number(row, "codec.encode_ns"),
                 decode_ns = dpb_json_number(row, "codec.decode_ns");
    char places[32];
    line->failed = !isfinite(rate);
    snprintf(line->text[DPB_SWEEP_STRATEGY], CELL, "%.20s", dpb_json_text(row, "strategy", "?"));
    snprintf(line->text[DPB_SWEEP_LABEL], CELL, "%.20s", dpb_json_text(row, "consistency", "?"));
    dpb_sweep_workers(row, places, sizeof places);
    print_if(line->text[DPB_SWEEP_WORKERS], workers, "%s%s%s", places,
             mark(row, "oversubscribed", "!"), mark(row, "time_sliced", "&"));
    snprintf(line->text[DPB_SWEEP_RATE], CELL, rate < 1000 ? "%.1f" : "%.0f", rate);
    print_interval(line->text[DPB_SWEEP_INTERVAL], row);
    print_if(line->text[DPB_SWEEP_SPEEDUP], speedup, "%.2f%s", speedup,
             dpb_begins_with(dpb_json_text(row, "speedup_over", ""), "same") ? "*" : "");
    print_if(line->text[DPB_SWEEP_PUBLISHED], published, "%.2f", published);
    print_percent(line->text[DPB_SWEEP_EFFICIENCY], row, "efficiency", 0);
    print_percent(line->text[DPB_SWEEP_EXPOSED], row, "comm_exposed_share", 1);
    print_percent(line->text[DPB_SWEEP_WAIT], row, "comm_wait_share", 1);
    print_percent(line->text[DPB_SWEEP_BYTES], row, "codec.ratio", 1);
    print_if(line->text[DPB_SWEEP_CODING], encode_ns,
             isfinite(decode_ns) ? "%.3g+%.3g ms" : "%.3g+? ms", encode_ns / 1e6, decode_ns / 1e6);
    print_if(line->text[DPB_SWEEP_LOSS], loss, "%.4f", loss);
    print_percent(line->text[DPB_SWEEP_ACCURACY], row, "accuracy", 2);
    snprintf(line->text[DPB_SWEEP_VERIFIED], CELL, "%s%s", verified_text(row),
             dpb_learning_failed(row) ? " #" : "");
    print_emulated(line->text[DPB_SWEEP_EMULATED], row);
    return true;
}

/* Below this share of a step in each row, waits for late peers have no column. */
static const double least_wait = 0.1;

/* "2 of 3"; of results that were merged, whose plans differ, "2". Shown where a row has fewer than
 * planned, or than another. */
static bool fill_counts(const json_t *document, struct dpb_table *table)
{
    const bool merged = json_object_get(document, "merged") != NULL;
    size_t first = SIZE_MAX, planned;
    bool differ = false;
    for (size_t i = 0; i < table->n; i++) {
        struct dpb_table_line *line = &table->lines[i];
        const size_t n = dpb_sweep_measured(line->row, &planned);
        if (n == planned || merged)
            snprintf(line->text[DPB_SWEEP_N], CELL, "%zu", n);
        else
            snprintf(line->text[DPB_SWEEP_N], CELL, "%zu of %zu", n, planned);
        if (line->failed)
            continue;
        differ |= (n < planned && !merged) || (first != SIZE_MAX && n != first);
        first = n;
    }
    return differ;
}

/* Labels where they differ, waits where they count, and no column of an unknown number alone. */
static bool has_content(const struct dpb_table_line *lines, size_t n, size_t column)
{
    const char *label = NULL;
    for (size_t i = 0; i < n; i++) {
        if (lines[i].failed)
            continue;
        const char *text = lines[i].text[column];
        if (column == DPB_SWEEP_WAIT) {
            if (dpb_json_number(lines[i].row, "comm_wait_share") >= least_wait)
                return true;
            continue;
        }
        if (column != DPB_SWEEP_LABEL && strcmp(text, "-") != 0)
            return true;
        if (column == DPB_SWEEP_LABEL && label && strcmp(text, label) != 0)
            return true;
        label = text;
    }
    return column == DPB_SWEEP_STRATEGY;
}

bool dpb_sweep_table_make(const json_t *document, struct dpb_table *table)
{
    const bool made = dpb_table_make(document, titles, DPB_SWEEP_COLUMNS, fill_line, table);
    for (size_t c = 0; c < DPB_SWEEP_COLUMNS; c++)
        table->shown[c] = has_content(table->lines, table->n, c);
    table->shown[DPB_SWEEP_N] = fill_counts(document, table);
    return made;
}

void dpb_sweep_table_fit(struct dpb_table *table)
{
    const size_t narrow = dpb_table_width(table) - dpb_table_n_shown(table) + 1; /* one blank */
    if (narrow > DPB_TABLE_WIDTH)
        table->shown[DPB_SWEEP_EFFICIENCY] = false;
}
